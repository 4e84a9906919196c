// Weight panels and KV tiles: positions by the contract's formulas, padding, round trips.
#include "kernels/kv_tiles.h"
#include "kernels/panels.h"
#include "kernels/test_support.h"

namespace sterling::kernels {
namespace {

TEST(Panels, PositionsAndPadding) {
  for (const int k : {1, 2, 7, 64, 65, 130, 131}) {
    for (const int rows : {1, 5, 16}) {
      const std::size_t ld = static_cast<std::size_t>(k) + 3;
      std::vector<std::uint16_t> small(ld * 16);
      std::vector<float> large(ld * 16);
      for (std::size_t i = 0; i < small.size(); ++i) {
        small[i] = static_cast<std::uint16_t>(i + 1);
        large[i] = static_cast<float>(i + 1);
      }
      const auto pairs = static_cast<std::size_t>((k + 1) / 2);
      ASSERT_EQ(panel_bytes_bf16(k), pairs * 64);
      ASSERT_EQ(panel_bytes_f32(k), pairs * 128);
      std::vector<std::uint16_t> small_panel(pairs * 32, 0xffff);
      std::vector<float> large_panel(pairs * 32, -1.0F);
      pack_panel_bf16(small.data(), ld, rows, k, small_panel.data());
      pack_panel_f32(large.data(), ld, rows, k, large_panel.data());
      for (std::size_t pair = 0; pair < pairs; ++pair) {
        for (std::size_t lane = 0; lane < 16; ++lane) {
          for (std::size_t odd = 0; odd < 2; ++odd) {
            const std::size_t column = 2 * pair + odd;
            const bool there = lane < static_cast<std::size_t>(rows) && column < static_cast<std::size_t>(k);
            ASSERT_EQ(small_panel[(pair * 16 + lane) * 2 + odd], there ? small[lane * ld + column] : 0);
            ASSERT_EQ(large_panel[(pair * 2 + odd) * 16 + lane], there ? large[lane * ld + column] : 0.0F);
          }
        }
      }
      for (int lane = 0; lane < rows; ++lane) {
        std::vector<std::uint16_t> small_row(static_cast<std::size_t>(k));
        std::vector<float> large_row(static_cast<std::size_t>(k));
        unpack_panel_row_bf16(small_panel.data(), lane, k, small_row.data());
        unpack_panel_row_f32(large_panel.data(), lane, k, large_row.data());
        for (std::size_t i = 0; i < small_row.size(); ++i) {
          ASSERT_EQ(small_row[i], small[static_cast<std::size_t>(lane) * ld + i]);
          ASSERT_EQ(large_row[i], large[static_cast<std::size_t>(lane) * ld + i]);
        }
      }
    }
  }
}

// Subnormal and special weights keep their bits: a proof compares them with the file.
TEST(Panels, KeepBits) {
  const std::uint16_t row[4] = {0x0001, 0x8000, 0x7f80, 0x7fc1};
  std::uint16_t panel[64];
  std::uint16_t back[4];
  pack_panel_bf16(row, 4, 1, 4, panel);
  unpack_panel_row_bf16(panel, 0, 4, back);
  EXPECT_EQ(std::memcmp(row, back, sizeof row), 0);
}

TEST(KvTiles, RoundTripAndNeighbours) {
  for (const int head_dim : {2, 14, 16, 18, 64, 128, 600}) {
    ASSERT_EQ(k_tile_bytes(KvCode::kBf16, head_dim), static_cast<std::size_t>(head_dim) * 32);
    ASSERT_EQ(v_tile_bytes(KvCode::kFp32, head_dim), static_cast<std::size_t>((head_dim + 15) / 16 * 16) * 64);
    ASSERT_EQ(k_tile_bytes(KvCode::kE5m2, head_dim), static_cast<std::size_t>(head_dim) * 16);
    ASSERT_EQ(k_tile_bytes(KvCode::kE4m3Token, head_dim), static_cast<std::size_t>(head_dim) * 16 + 64);
    std::vector<std::vector<float>> rows;
    Random random(static_cast<std::uint64_t>(head_dim));
    for (int slot = 0; slot < kTileTokens; ++slot) {
      std::vector<float> row(static_cast<std::size_t>(head_dim));
      for (float& x : row) x = random.hostile(true);
      rows.push_back(row);
    }
    for (const KvCode code : kKvCodes) {
      for (const KvSide side : {KvSide::kK, KvSide::kV}) {
        const float scale = 0.0375F;
        platform::AlignedBuffer tile = bytes(kv_tile_bytes(side, code, head_dim));
        KvCounts counts;
        for (int slot = 0; slot < kTileTokens; ++slot) {
          write_kv_row(side, code, tile.data(), slot, rows[static_cast<std::size_t>(slot)].data(), head_dim, scale,
                       counts);
        }
        for (int slot = 0; slot < kTileTokens; ++slot) {
          const std::vector<float>& row = rows[static_cast<std::size_t>(slot)];
          const float used = read_kv_scale(side, code, tile.data(), slot, head_dim, scale);
          ASSERT_EQ(used, code == KvCode::kE4m3Token                       ? token_scale(row.data(), head_dim)
                          : code == KvCode::kE4m3 || code == KvCode::kE5m2 ? scale
                                                                           : 1.0F);
          const std::size_t row_bytes = static_cast<std::size_t>(head_dim) * kv_element_bytes(code);
          std::vector<std::uint8_t> expected(row_bytes), elements(row_bytes);
          encode_kv(code, row.data(), head_dim, used, expected.data(), counts);
          read_kv_elements(side, code, tile.data(), slot, elements.data(), head_dim);
          ASSERT_EQ(elements, expected);
          std::vector<float> decoded(row.size()), back(row.size());
          decode_kv(code, expected.data(), head_dim, decoded.data());
          for (float& x : decoded) x *= used;
          read_kv_row(side, code, tile.data(), slot, back.data(), head_dim, scale);
          STERLING_EXPECT_BITS(back, decoded, "side " << static_cast<int>(side) << " code " << static_cast<int>(code));
          if (code == KvCode::kFp32) STERLING_EXPECT_BITS(back, row, "fp32");
        }
        // A flipped bit shows where it was flipped, and nowhere else.
        std::vector<std::uint8_t> before(static_cast<std::size_t>(head_dim) * 4), after(before.size());
        const int dim = head_dim / 2;
        read_kv_elements(side, code, tile.data(), 5, before.data(), head_dim);
        flip_kv_bits(side, code, tile.data(), 5, dim, 0x81);
        read_kv_elements(side, code, tile.data(), 5, after.data(), head_dim);
        before[static_cast<std::size_t>(dim) * kv_element_bytes(code)] ^= 0x81;
        ASSERT_EQ(before, after);
      }
    }
  }
}

// A K tile is a weight panel of 16 tokens; the V tile's blocks are panels of 16 dims over the tokens.
TEST(KvTiles, AreWeightPanels) {
  const int head_dim = 32;
  std::vector<std::uint16_t> rows(16 * 32), columns(16 * 32), k(16 * 32), v(16 * 32), expected_k(16 * 32),
      expected_v(16 * 32);
  Random random(4);
  for (std::size_t slot = 0; slot < 16; ++slot) {
    std::vector<float> row(32);
    for (float& x : row) x = round_bf16(random.normal());
    for (std::size_t d = 0; d < 32; ++d) {
      rows[slot * 32 + d] = to_bf16(row[d]).bits;
      columns[d * 16 + slot] = to_bf16(row[d]).bits;
    }
    KvCounts counts;
    write_kv_row(KvSide::kK, KvCode::kBf16, k.data(), static_cast<int>(slot), row.data(), head_dim, 1.0F, counts);
    write_kv_row(KvSide::kV, KvCode::kBf16, v.data(), static_cast<int>(slot), row.data(), head_dim, 1.0F, counts);
  }
  pack_panel_bf16(rows.data(), 32, 16, 32, expected_k.data());
  pack_panel_bf16(columns.data(), 16, 16, 16, expected_v.data());
  pack_panel_bf16(columns.data() + 256, 16, 16, 16, expected_v.data() + 256);
  EXPECT_EQ(k, expected_k);
  EXPECT_EQ(v, expected_v);
}

}  // namespace
}  // namespace sterling::kernels
