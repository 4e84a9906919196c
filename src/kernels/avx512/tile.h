// Register tiles for 32 registers of 16 lanes, shared by the AVX-512 tiers: rows x columns near 24 accumulators leave room for the
// weights of a step and a broadcast. Include inside the tier's anonymous namespace.

constexpr int kRowTile = 12;
constexpr int columns_of(int rows) { return rows <= 3 ? 8 : rows == 4 ? 6 : rows <= 6 ? 4 : rows <= 8 ? 3 : 2; }
