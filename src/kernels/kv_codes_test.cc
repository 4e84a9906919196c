// What K and V become in the cache. Hashes of whole sweeps and the fixture come from ml_dtypes (quotients in FP32 by numpy, clipped first).
#include "kernels/kv_codes.h"

#include <fstream>
#include <iterator>
#include <numeric>

#include "kernels/test_support.h"

namespace sterling::kernels {
namespace {

std::uint64_t fnv1a(const std::vector<std::uint8_t>& bytes) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const std::uint8_t byte : bytes) hash = (hash ^ byte) * 0x100000001b3u;
  return hash;
}

std::vector<float> every_bf16() {
  std::vector<float> values;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) values.push_back(std::bit_cast<float>(bits << 16));
  return values;
}

std::vector<std::uint8_t> encode(KvCode code, const std::vector<float>& values, float scale, KvCounts& counts) {
  std::vector<std::uint8_t> codes(values.size() * kv_element_bytes(code));
  encode_kv(code, values.data(), static_cast<int>(values.size()), scale, codes.data(), counts);
  return codes;
}

TEST(KvCodes, EveryBf16ValueAsMlDtypes) {
  struct Sweep {
    KvCode code;
    float scale;
    std::uint64_t hash;
  };
  constexpr Sweep kSweeps[] = {
      {KvCode::kE4m3, 1.0F, 0xf9dea88c05be79a5},    {KvCode::kE4m3, 0.0123F, 0x30bca6fc3a91433d},
      {KvCode::kE4m3, 3.0F, 0xbddb5f1eaf5c9601},    {KvCode::kE5m2, 1.0F, 0x2868a19e0e652445},
      {KvCode::kE5m2, 0.0123F, 0x07eb162966501835}, {KvCode::kE5m2, 3.0F, 0xd4d1841ebd6c23a5},
  };
  for (const Sweep& sweep : kSweeps) {
    KvCounts counts;
    EXPECT_EQ(fnv1a(encode(sweep.code, every_bf16(), sweep.scale, counts)), sweep.hash)
        << static_cast<int>(sweep.code) << " " << sweep.scale;
    EXPECT_EQ(counts.non_finite, 2 * 128);
    // The bits don't hang on the thread's flush modes.
    const platform::ComputeFloatScope scope;
    KvCounts flushed;
    EXPECT_EQ(fnv1a(encode(sweep.code, every_bf16(), sweep.scale, flushed)), sweep.hash);
    EXPECT_EQ(flushed.underflowed, counts.underflowed);
    EXPECT_EQ(flushed.clipped, counts.clipped);
  }
}

// Values near every rounding switch.
TEST(KvCodes, FixtureOfMlDtypes) {
  const auto read = [](const char* name) {
    std::ifstream in(std::string(STERLING_SOURCE_DIR) + "/tests/data/encode/" + name, std::ios::binary);
    return std::vector<char>((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  };
  const std::vector<char> raw = read("values.f32");
  std::vector<float> values(raw.size() / sizeof(float));
  ASSERT_GT(values.size(), 1000U);
  std::memcpy(values.data(), raw.data(), raw.size());
  for (const auto& [code, name, largest] :
       {std::tuple{KvCode::kE4m3, "e4m3.u8", 448.0F}, std::tuple{KvCode::kE5m2, "e5m2.u8", 57344.0F}}) {
    const std::vector<char> expected = read(name);
    KvCounts counts;
    const std::vector<std::uint8_t> codes = encode(code, values, 1.0F, counts);
    std::int64_t compared = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (!(std::fabs(values[i]) <= largest)) continue;  // the fixture doesn't saturate
      ASSERT_EQ(int{codes[i]}, int{static_cast<std::uint8_t>(expected[i])}) << values[i];
      ++compared;
    }
    EXPECT_GT(compared, 1000);
  }
}

TEST(KvCodes, CountersAndSpecialValues) {
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  KvCounts counts;
  const std::vector<float> x = {448.0F, 464.0F, 464.1F, -1e30F, 0x1p-10F, -0x1.8p-10F, 0x1p-30F,
                                0.0F,   -0.0F,  inf,    -inf,   nan,      -nan,        0x1p-140F};
  const std::vector<std::uint8_t> expected = {0x7e, 0x7e, 0x7e, 0xfe, 0x00, 0x81, 0x00,
                                              0x00, 0x80, 0x7e, 0xfe, 0x7f, 0xff, 0x00};
  EXPECT_EQ(encode(KvCode::kE4m3, x, 1.0F, counts), expected);
  EXPECT_EQ(counts.clipped, 2);
  EXPECT_EQ(counts.underflowed, 3);
  EXPECT_EQ(counts.non_finite, 4);

  counts = {};
  EXPECT_EQ(encode(KvCode::kE5m2, {57344.0F, 61439.0F, 61440.0F, 0x1p-17F, 0x1.1p-17F, nan, inf}, 1.0F, counts),
            (std::vector<std::uint8_t>{0x7b, 0x7b, 0x7b, 0x00, 0x01, 0x7e, 0x7b}));
  EXPECT_EQ(counts.clipped, 1);
  EXPECT_EQ(counts.underflowed, 1);
  EXPECT_EQ(counts.non_finite, 2);

  counts = {};
  encode(KvCode::kBf16, {1.0F, 3.4e38F, 0x1p-130F, inf, nan, 0.0F}, 1.0F, counts);
  EXPECT_EQ(counts.clipped, 1);
  EXPECT_EQ(counts.underflowed, 1);
  EXPECT_EQ(counts.non_finite, 2);

  counts = {};
  encode(KvCode::kFp32, {1.0F, 3.4e38F, 0x1p-130F, inf, nan, 0.0F}, 1.0F, counts);
  EXPECT_EQ(counts.clipped + counts.underflowed, 0);
  EXPECT_EQ(counts.non_finite, 2);
}

TEST(KvCodes, DecodeIsExact) {
  for (const KvCode code : {KvCode::kE4m3, KvCode::kE5m2}) {
    std::vector<std::uint8_t> codes(256);
    std::iota(codes.begin(), codes.end(), std::uint8_t{0});
    std::vector<float> values(256);
    decode_kv(code, codes.data(), 256, values.data());
    for (std::size_t i = 0; i < 256; ++i) {
      if (!std::isfinite(values[i])) continue;
      KvCounts counts;
      ASSERT_EQ(int{encode(code, {values[i]}, 1.0F, counts)[0]}, static_cast<int>(i));
      ASSERT_TRUE(same_bits(to_float(to_bf16(values[i])), values[i]));
    }
    EXPECT_TRUE(std::isnan(values[0x7f]) && std::isnan(values[0xff]));
  }
  std::uint8_t infinity = 0x7c;
  float value = 0.0F;
  decode_kv(KvCode::kE5m2, &infinity, 1, &value);
  EXPECT_EQ(value, std::numeric_limits<float>::infinity());
}

// scale = 2^ceil(log2(largest / 448)) by arithmetic in double, and what follows from it.
TEST(KvCodes, TokenScaleIsTheSmallestThatDoesNotClip) {
  Random random(9);
  for (int round = 0; round < 20'000; ++round) {
    std::vector<float> row(6);
    const int exponent = random.below(230) - 115;
    for (float& x : row) x = std::ldexp(random.normal(), exponent);
    if (round % 4 == 0) row[0] = std::ldexp(448.0F, exponent);                         // just fits
    if (round % 4 == 1) row[0] = std::nextafter(std::ldexp(448.0F, exponent), 1e38F);  // just doesn't
    const float scale = token_scale(row.data(), 6);
    double largest = 0.0;
    for (const float x : row) largest = std::max(largest, std::fabs(static_cast<double>(x)));
    const double expected = std::exp2(std::clamp(std::ceil(std::log2(largest / 448.0)), -117.0, 119.0));
    ASSERT_EQ(static_cast<double>(scale), expected) << largest;
    KvCounts counts;
    std::vector<std::uint8_t> codes = encode(KvCode::kE4m3Token, row, scale, counts);
    ASSERT_EQ(counts.clipped, 0);
    std::vector<float> decoded(6);
    decode_kv(KvCode::kE4m3Token, codes.data(), 6, decoded.data());
    for (float x : decoded) {
      x *= scale;
      ASSERT_TRUE(x == 0.0F || std::isnormal(x));
      ASSERT_TRUE(same_bits(to_float(to_bf16(x)), x)) << "not a BF16 value: " << x;
    }
  }
  const float inf = std::numeric_limits<float>::infinity();
  for (const std::vector<float>& row :
       {std::vector<float>{0.0F, -0.0F}, {inf, 0.0F}, {std::nanf(""), -inf}, {0x1p-130F, 0.0F}})
    EXPECT_EQ(token_scale(row.data(), 2), 1.0F);
  const float with_inf[] = {inf, 3.0F};
  EXPECT_EQ(token_scale(with_inf, 2), 0x1p-7F);  // by the finite ones
  const float huge[] = {3.4e38F, 1.0F};
  KvCounts counts;
  EXPECT_EQ(token_scale(huge, 2), 0x1p119F);
  EXPECT_EQ(encode(KvCode::kE4m3Token, {huge[0]}, 0x1p119F, counts)[0], 0x7e);
  EXPECT_EQ(counts.clipped, 1);
}

}  // namespace
}  // namespace sterling::kernels
