// The proof's own reading of stored elements against the library's codecs: two independent roads to the same codes.
#include "proof/kv_codec.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <random>

#include <gtest/gtest.h>

#include "quant/encode.h"
#include "quant/float_codes.h"

namespace sterling::proof {
namespace {

using plan::KvType;

TEST(KvCodec, KnownCodes) {
  EXPECT_EQ(decode_bits(KvType::kFp8E4m3, 0x7e), 448.0);
  EXPECT_EQ(decode_bits(KvType::kFp8E4m3, 0x01), std::ldexp(1.0, -9));
  EXPECT_TRUE(std::isnan(decode_bits(KvType::kFp8E4m3, 0x7f)));
  EXPECT_EQ(decode_bits(KvType::kFp8E5m2, 0x7b), 57344.0);
  EXPECT_EQ(decode_bits(KvType::kFp8E5m2, 0x81), -std::ldexp(1.0, -16));
  EXPECT_TRUE(std::isinf(decode_bits(KvType::kFp8E5m2, 0x7c)));
  EXPECT_EQ(decode_bits(KvType::kBf16, 0xc049), -3.140625);
  EXPECT_EQ(decode_bits(KvType::kFp32, std::bit_cast<std::uint32_t>(0.1F)), static_cast<double>(0.1F));
  // Ties go to the even code; beyond the largest value everything saturates.
  EXPECT_EQ(expected_bits(KvType::kFp8E4m3, 1.0625F, 1.0F), 0x38U);
  EXPECT_EQ(expected_bits(KvType::kFp8E4m3, 1.1875F, 1.0F), 0x3aU);
  EXPECT_EQ(expected_bits(KvType::kFp8E4m3, -1e9F, 1.0F), 0xfeU);
  EXPECT_EQ(expected_bits(KvType::kFp8E5m2, 1e9F, 1.0F), 0x7bU);
  EXPECT_EQ(expected_bits(KvType::kFp8E4m3, 1.0F, 0.5F), 0x40U);
  EXPECT_EQ(expected_bits(KvType::kBf16, 1.00390625F, 1.0F), 0x3f80U);
}

TEST(KvCodec, AgreesWithTheLibraryOnEveryCodeAndRandomValues) {
  for (std::uint32_t code = 0; code < 256; ++code) {
    const auto byte = static_cast<std::uint8_t>(code);
    const double e4m3 = decode_bits(KvType::kFp8E4m3, code);
    const double e5m2 = decode_bits(KvType::kFp8E5m2, code);
    if (!std::isnan(e4m3)) {
      EXPECT_EQ(e4m3, static_cast<double>(quant::e4m3_to_float(byte)));
    }
    if (!std::isnan(e5m2)) {
      EXPECT_EQ(e5m2, static_cast<double>(quant::e5m2_to_float(byte)));
    }
  }
  std::mt19937_64 random(7);
  for (int i = 0; i < 200000; ++i) {
    const auto bits = static_cast<std::uint32_t>(random());
    const auto x = std::bit_cast<float>(bits);
    if (!std::isfinite(x) || std::fabs(x) < 1e-37F) continue;
    EXPECT_EQ(expected_bits(KvType::kFp8E4m3, x, 1.0F), quant::float_to_e4m3(x)) << x;
    EXPECT_EQ(expected_bits(KvType::kFp8E5m2, x, 1.0F), quant::float_to_e5m2(x)) << x;
    const float near = std::ldexp(x, -std::ilogb(x) + static_cast<int>(bits % 20) - 12);
    EXPECT_EQ(expected_bits(KvType::kFp8E4m3, near, 1.0F), quant::float_to_e4m3(near)) << near;
    EXPECT_EQ(expected_bits(KvType::kFp8E5m2, near, 1.0F), quant::float_to_e5m2(near)) << near;
  }
}

TEST(KvCodec, TokenScaleIsTheSmallestThatFits) {
  EXPECT_EQ(expected_token_scale(std::vector<float>{448.0F, -1.0F}), 1.0F);
  EXPECT_EQ(expected_token_scale(std::vector<float>{448.5F}), 2.0F);
  EXPECT_EQ(expected_token_scale(std::vector<float>{0.0F, -0.0F}), 1.0F);
  EXPECT_EQ(expected_token_scale(std::vector<float>{3.5F}), std::ldexp(1.0F, -7));
  EXPECT_EQ(expected_token_scale(std::vector<float>{1e-38F}), 1.0F);
}

}  // namespace
}  // namespace sterling::proof
