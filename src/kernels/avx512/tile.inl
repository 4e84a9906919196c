// Register tiles for 32 registers of 16 lanes, shared by the AVX-512 tiers: rows x columns near 24 accumulators leave room for the
// weights of a step and a broadcast. Include inside the tier's anonymous namespace.

constexpr int kRowTile = 12;
// Weight panels at once. One row alone is bound by memory: four streams, which the hardware follows better than eight, hide the latency.
constexpr int columns_of(int rows) {
  return rows == 1 ? 4 : rows <= 3 ? 8 : rows == 4 ? 6 : rows <= 6 ? 4 : rows <= 8 ? 3 : 2;
}
// KV tiles at once.
constexpr int tiles_of(int rows) {
  return rows == 1 ? 8 : columns_of(rows);
}
