// Values against tests/data/gguf, whose files and expected values were made with the Python package gguf
// (tools/quant/make_gguf_fixtures.py).
#include "quant/decode.h"

#include <bit>
#include <cstring>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/checkpoint.h"
#include "formats/gguf.h"
#include "platform/mapped_file.h"

namespace sterling::quant {
namespace {

using ::testing::HasSubstr;

std::string data_path(const std::string& name) {
  return std::string(STERLING_SOURCE_DIR) + "/tests/data/gguf/" + name;
}

const TensorView* find(const std::vector<TensorView>& tensors, std::string_view name) {
  for (const TensorView& tensor : tensors) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

void expect_same_bits(const std::vector<float>& found, const std::vector<float>& expected, const std::string& what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  std::size_t different = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (std::bit_cast<std::uint32_t>(found[i]) == std::bit_cast<std::uint32_t>(expected[i])) continue;
    if (++different <= 3) ADD_FAILURE() << what << " [" << i << "]: " << found[i] << ", expected " << expected[i];
  }
  EXPECT_EQ(different, 0u) << what;
}

std::vector<float> decoded(const TensorView& tensor) {
  auto values = decode(tensor);
  EXPECT_TRUE(values.ok()) << values.error().message;
  return values.ok() ? *values : std::vector<float>();
}

class DecodeType : public ::testing::TestWithParam<DType> {};

TEST_P(DecodeType, EqualsTheReferenceDecoder) {
  const std::string name(dtype_name(GetParam()));
  auto file = platform::MappedFile::open(data_path("type_" + name + ".gguf"));
  ASSERT_TRUE(file.ok()) << file.error().message;
  const auto contents = formats::parse_gguf(file->data(), file->path());
  ASSERT_TRUE(contents.ok()) << contents.error().message;
  const TensorView* stored = find(contents->tensors, "stored");
  const TensorView* expected = find(contents->tensors, "expected");
  ASSERT_TRUE(stored != nullptr && expected != nullptr);
  EXPECT_EQ(stored->dtype, GetParam());
  EXPECT_EQ(stored->shape, (std::vector<std::int64_t>{3, 512}));
  EXPECT_TRUE(can_decode(GetParam()));
  const std::vector<float> want = decoded(*expected);
  expect_same_bits(decoded(*stored), want, name);

  // Any run of rows alone gives the same.
  std::vector<float> rows(2 * 512, -1.0f);
  ASSERT_TRUE(decode_rows(*stored, 1, 3, rows.data()).ok());
  expect_same_bits(rows, std::vector<float>(want.begin() + 512, want.end()), name + " rows 1-2");
  EXPECT_TRUE(decode_rows(*stored, 2, 2, nullptr).ok());
}

INSTANTIATE_TEST_SUITE_P(AllTypes, DecodeType,
                         ::testing::Values(DType::kF16, DType::kBF16, DType::kQ4_0, DType::kQ4_1, DType::kQ5_0,
                                           DType::kQ5_1, DType::kQ8_0, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K),
                         [](const auto& info) { return std::string(dtype_name(info.param)); });

TEST(Decode, PutsInterleavedRopeRowsBack) {
  const auto checkpoint = formats::Checkpoint::open(data_path("llama.gguf"));
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  auto file = platform::MappedFile::open(data_path("llama.expected.gguf"));
  ASSERT_TRUE(file.ok()) << file.error().message;
  const auto expected = formats::parse_gguf(file->data(), file->path());
  ASSERT_TRUE(expected.ok()) << expected.error().message;

  const std::vector<std::pair<std::string, std::string>> names = {
      {"model.embed_tokens.weight", "token_embd.weight"},
      {"rope_freqs.weight", "rope_freqs.weight"},
      {"model.layers.0.self_attn.q_proj.weight", "blk.0.attn_q.weight"},
      {"model.layers.0.self_attn.q_proj.bias", "blk.0.attn_q.bias"},
      {"model.layers.0.self_attn.k_proj.weight", "blk.0.attn_k.weight"},
      {"model.layers.0.self_attn.v_proj.weight", "blk.0.attn_v.weight"},
      {"model.layers.0.self_attn.o_proj.weight", "blk.0.attn_output.weight"},
      {"model.layers.1.self_attn.q_proj.weight", "blk.1.attn_q.weight"},
      {"model.layers.1.self_attn.k_proj.weight", "blk.1.attn_k.weight"},
  };
  for (const auto& [ours, theirs] : names) {
    const TensorView* tensor = checkpoint->find(ours);
    const TensorView* reference = find(expected->tensors, theirs);
    ASSERT_TRUE(tensor != nullptr && reference != nullptr) << ours;
    EXPECT_EQ(tensor->shape, reference->shape) << ours;
    const bool rotated = ours.find("q_proj") != std::string::npos || ours.find("k_proj") != std::string::npos;
    EXPECT_EQ(tensor->interleaved_rope_heads, !rotated ? 0 : ours.find("q_proj") != std::string::npos ? 4 : 2) << ours;
    const std::vector<float> want = decoded(*reference);
    expect_same_bits(decoded(*tensor), want, ours);
    if (tensor->shape.size() == 2) {  // rows one by one
      const auto [rows, columns] = row_shape(*tensor);
      std::vector<float> all(static_cast<std::size_t>(rows * columns));
      for (std::int64_t r = 0; r < rows; ++r)
        ASSERT_TRUE(decode_rows(*tensor, r, r + 1, all.data() + r * columns).ok());
      expect_same_bits(all, want, ours + " by rows");
    }
  }
}

TensorView view_of(DType dtype, std::vector<std::int64_t> shape, std::span<const std::byte> data) {
  TensorView view;
  view.name = "w";
  view.file = "model.safetensors";
  view.dtype = dtype;
  view.shape = std::move(shape);
  view.data = data;
  return view;
}

TEST(Decode, ReadsUnalignedScalars) {
  const float values[2] = {1.5f, -2.0f};
  std::byte bytes[9];
  std::memcpy(bytes + 1, values, sizeof values);
  const std::span<const std::byte> data(bytes + 1, 8);
  EXPECT_EQ(decoded(view_of(DType::kF32, {2}, data)), (std::vector<float>{1.5f, -2.0f}));
  EXPECT_EQ(decoded(view_of(DType::kF32, {}, data.first(4))), (std::vector<float>{1.5f}));
  EXPECT_EQ(decoded(view_of(DType::kF32, {0, 4}, {})), (std::vector<float>{}));
  EXPECT_EQ(decoded(view_of(DType::kF32, {4, 0}, {})), (std::vector<float>{}));
  EXPECT_EQ(row_shape(view_of(DType::kF32, {2, 3, 4}, {})).rows, 6);
  EXPECT_EQ(row_shape(view_of(DType::kF32, {7}, {})).rows, 1);
  EXPECT_EQ(row_shape(view_of(DType::kF32, {7}, {})).columns, 7);
}

TEST(Decode, RefusesWhatHasNoValueOfItsOwn) {
  const std::byte bytes[64] = {};
  const auto message = [&](const TensorView& view) {
    const auto values = decode(view);
    return values.ok() ? "accepted" : values.error().message;
  };
  const std::span<const std::byte> data(bytes);
  for (const DType dtype : {DType::kF64, DType::kF8E4M3, DType::kF4E2M1, DType::kU8, DType::kI32}) {
    const std::size_t size = *dtype_bytes(dtype, 4);
    EXPECT_THAT(
        message(view_of(dtype, {4}, data.first(size))),
        HasSubstr("model.safetensors: tensor \"w\": " + std::string(dtype_name(dtype)) + " has no exact FP32 value"));
    EXPECT_FALSE(can_decode(dtype));
  }
  EXPECT_THAT(message(view_of(DType::kF32, {4}, data.first(12))), HasSubstr("12 bytes do not fit shape [4] of F32"));
  EXPECT_THAT(message(view_of(DType::kQ4_0, {2, 16}, data.first(18))), HasSubstr("do not fit"));
  EXPECT_THAT(message(view_of(DType::kF32, {-1}, {})), HasSubstr("do not fit"));

  TensorView rotated = view_of(DType::kF32, {6, 2}, data.first(48));
  rotated.interleaved_rope_heads = 2;  // heads of 3 rows have no halves
  EXPECT_THAT(message(rotated), HasSubstr("shape [6, 2] cannot be 2 interleaved heads"));
  rotated.interleaved_rope_heads = std::int64_t{1} << 62;
  EXPECT_THAT(message(rotated), HasSubstr("interleaved heads"));

  float out[8];
  const TensorView good = view_of(DType::kF32, {2, 4}, data.first(32));
  EXPECT_THAT(decode_rows(good, 1, 3, out).error().message, HasSubstr("rows [1, 3) of 2 rows"));
  EXPECT_FALSE(decode_rows(good, -1, 1, out).ok());
  EXPECT_FALSE(decode_rows(good, 2, 1, out).ok());
}

}  // namespace
}  // namespace sterling::quant
