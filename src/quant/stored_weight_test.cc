// Formats of several tensors: what each element means, and what is refused. Expected values are written out from the formats' definitions.
#include "quant/stored_weight.h"

#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace sterling::quant {
namespace {

// Owns bytes for a view.
struct Stored {
  std::string bytes;
  TensorView view(std::string name, DType dtype, std::vector<std::int64_t> shape) const {
    TensorView v;
    v.name = std::move(name);
    v.dtype = dtype;
    v.shape = std::move(shape);
    v.data = std::as_bytes(std::span(bytes.data(), bytes.size()));
    v.file = "model.safetensors";
    return v;
  }
};

Stored floats(const std::vector<float>& values) {
  Stored s;
  s.bytes.resize(values.size() * 4);
  std::memcpy(s.bytes.data(), values.data(), s.bytes.size());
  return s;
}

std::vector<float> decoded(const StoredWeight& weight) {
  std::vector<float> out(static_cast<std::size_t>(weight.rows() * weight.cols()));
  const Status status = decode_rows(weight, 0, weight.rows(), out.data());
  EXPECT_TRUE(status.ok()) << (status.ok() ? "" : status.error().message);
  return out;
}

// E4M3: 0x38 = 1, 0x40 = 2, 0x30 = 0.5, 0x01 = 2^-9.
TEST(StoredWeightTest, Fp8PerTensorAndPerChannel) {
  const Stored codes{std::string("\x38\x40\x30\x01", 4)};
  const Stored one = floats({0.25F});
  StoredWeight w;
  w.format = WeightFormat::kFp8Tensor;
  w.codes = codes.view("w.weight", DType::kF8E4M3, {2, 2});
  w.scale = one.view("w.weight_scale", DType::kF32, {});
  EXPECT_TRUE(check(w).ok());
  EXPECT_EQ(decoded(w), (std::vector<float>{0.25F, 0.5F, 0.125F, 0.25F / 512}));
  const Stored two = floats({0.25F, 8.0F});
  w.format = WeightFormat::kFp8Channel;
  w.scale = two.view("w.weight_scale", DType::kF32, {2, 1});
  EXPECT_TRUE(check(w).ok());
  EXPECT_EQ(decoded(w), (std::vector<float>{0.25F, 0.5F, 4.0F, 8.0F / 512}));
}

TEST(StoredWeightTest, Fp8BlocksAtTheEdges) {
  const Stored codes{std::string(15, '\x38')};
  const Stored scales = floats({1, 2, 3, 4});
  StoredWeight w;
  w.format = WeightFormat::kFp8Block;
  w.codes = codes.view("w.weight", DType::kF8E4M3, {3, 5});
  w.scale = scales.view("w.weight_scale_inv", DType::kF32, {2, 2});
  w.block_rows = 2;
  w.block_cols = 4;
  EXPECT_TRUE(check(w).ok());
  EXPECT_EQ(decoded(w), (std::vector<float>{1, 1, 1, 1, 2, 1, 1, 1, 1, 2, 3, 3, 3, 3, 4}));
}

TEST(StoredWeightTest, Nvfp4GlobalScaleMultipliesOrDivides) {
  // Byte 0xa3: element 0 is code 3 (1.5), element 1 is code 10 (-1). The facts' own example.
  const Stored codes{std::string(8, '\xa3')};
  const Stored scale{std::string("\x40", 1)};  // 2
  const Stored global = floats({0.5F});
  StoredWeight w;
  w.format = WeightFormat::kNvfp4;
  w.codes = codes.view("w.weight", DType::kU8, {1, 8});
  w.scale = scale.view("w.weight_scale", DType::kF8E4M3, {1, 1});
  w.global_scale = global.view("w.weight_scale_2", DType::kF32, {});
  ASSERT_TRUE(check(w).ok());
  EXPECT_EQ(decoded(w)[0], 1.5F);
  EXPECT_EQ(decoded(w)[1], -1.0F);
  EXPECT_EQ(read_scales(w)->row, std::vector<float>{0.5F});
  w.divide_by_global = true;
  EXPECT_EQ(decoded(w)[0], 6.0F);
  EXPECT_EQ(decoded(w)[1], -4.0F);
  EXPECT_EQ(read_scales(w)->row, std::vector<float>{2.0F});
}

TEST(StoredWeightTest, MicroscalingScalesArePowersOfTwo) {
  const Stored nibbles{std::string(16, '\x25')};  // 3, 1, 3, 1, …
  const Stored scale{std::string("\x82", 1)};     // 2^3
  StoredWeight w;
  w.format = WeightFormat::kMxfp4;
  w.codes = nibbles.view("w.weight", DType::kU8, {1, 16});
  w.scale = scale.view("w.weight_scale", DType::kU8, {1, 1});
  ASSERT_TRUE(check(w).ok());
  EXPECT_EQ(decoded(w)[0], 24.0F);
  EXPECT_EQ(decoded(w)[31], 8.0F);
  const Stored bytes{std::string(32, '\x30')};
  w.format = WeightFormat::kMxfp8;
  w.codes = bytes.view("w.weight", DType::kF8E4M3, {1, 32});
  ASSERT_TRUE(check(w).ok());
  EXPECT_EQ(decoded(w)[7], 4.0F);
}

TEST(StoredWeightTest, FaultsAreNamed) {
  const Stored codes{std::string(16, '\x11')};
  const Stored global = floats({0.5F});
  const auto with = [&](char scale_code) {
    static Stored scale;
    scale.bytes = std::string(2, '\x38');
    scale.bytes[1] = scale_code;
    StoredWeight w;
    w.format = WeightFormat::kNvfp4;
    w.codes = codes.view("m.weight", DType::kU8, {2, 8});
    w.scale = scale.view("m.weight_scale", DType::kF8E4M3, {2, 1});
    w.global_scale = global.view("m.weight_scale_2", DType::kF32, {});
    return w;
  };
  EXPECT_TRUE(check_group_scales(with('\x38'), 0, 2).ok());
  const Status nan = check_group_scales(with('\x7f'), 0, 2);
  ASSERT_FALSE(nan.ok());
  EXPECT_NE(nan.error().message.find("m.weight_scale"), std::string::npos);
  EXPECT_NE(nan.error().message.find("[1, 0], which is NaN"), std::string::npos);
  EXPECT_FALSE(check_group_scales(with('\xb8'), 0, 2).ok());
  for (const float bad :
       {0.0F, -1.0F, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    const Stored wrong = floats({bad});
    StoredWeight w = with('\x38');
    w.global_scale = wrong.view("m.weight_scale_2", DType::kF32, {});
    EXPECT_FALSE(check(w).ok()) << bad;
  }
  StoredWeight shape = with('\x38');
  shape.scale->shape = {1, 1};
  EXPECT_FALSE(check(shape).ok());
  const Stored nan_codes{std::string("\x38\xff", 2)};
  StoredWeight fp8;
  fp8.format = WeightFormat::kFp8Tensor;
  fp8.codes = nan_codes.view("m.weight", DType::kF8E4M3, {1, 2});
  fp8.scale = global.view("m.weight_scale", DType::kF32, {});
  EXPECT_FALSE(check_codes(fp8, 0, 1).ok());
}

}  // namespace
}  // namespace sterling::quant
