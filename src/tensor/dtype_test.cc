#include "tensor/dtype.h"

#include <cstdint>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

namespace sterling {
namespace {

TEST(DType, BytesCountWholeBlocks) {
  EXPECT_EQ(dtype_bytes(DType::kF32, 3), 12u);
  EXPECT_EQ(dtype_bytes(DType::kBF16, 0), 0u);
  EXPECT_EQ(dtype_bytes(DType::kF4E2M1, 6), 3u);
  EXPECT_EQ(dtype_bytes(DType::kF4E2M1, 5), std::nullopt);
  EXPECT_EQ(dtype_bytes(DType::kQ4_0, 64), 36u);
  EXPECT_EQ(dtype_bytes(DType::kQ4_0, 33), std::nullopt);
  EXPECT_EQ(dtype_bytes(DType::kQ6_K, 512), 420u);
}

TEST(DType, BytesThatDoNotFitAreRefused) {
  constexpr std::uint64_t kLargest = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(dtype_bytes(DType::kU8, kLargest), kLargest);
  EXPECT_EQ(dtype_bytes(DType::kU8, kLargest + 1), std::nullopt);
  EXPECT_EQ(dtype_bytes(DType::kF64, kLargest / 8), kLargest / 8 * 8);
  EXPECT_EQ(dtype_bytes(DType::kF64, kLargest / 8 + 1), std::nullopt);
}

TEST(Shape, ElementsMultiplyWithoutOverflow) {
  EXPECT_EQ(shape_elements({}), 1u);
  EXPECT_EQ(shape_elements(std::vector<std::int64_t>{3, 5}), 15u);
  EXPECT_EQ(shape_elements(std::vector<std::int64_t>{3, 0}), 0u);
  EXPECT_EQ(shape_elements(std::vector<std::int64_t>{3, -1}), std::nullopt);
  EXPECT_EQ(shape_elements(std::vector<std::int64_t>{std::int64_t{1} << 32, std::int64_t{1} << 31}), std::nullopt);
  EXPECT_EQ(shape_elements(std::vector<std::int64_t>{std::int64_t{1} << 32, std::int64_t{1} << 30}),
            std::uint64_t{1} << 62);
  // A zero must not hide extents that overflow.
  EXPECT_EQ(shape_elements(std::vector<std::int64_t>{0, std::int64_t{1} << 33, std::int64_t{1} << 33}), std::nullopt);
}

TEST(Shape, Text) {
  EXPECT_EQ(shape_text({}), "[]");
  EXPECT_EQ(shape_text(std::vector<std::int64_t>{32, 16}), "[32, 16]");
}

TEST(DType, NamesAreThoseOfTheFileFormats) {
  EXPECT_EQ(dtype_name(DType::kF8E4M3), "F8_E4M3");
  EXPECT_EQ(dtype_name(DType::kF4E2M1), "F4");
  EXPECT_EQ(dtype_name(DType::kQ4_K), "Q4_K");
  EXPECT_FALSE(is_block_dtype(DType::kBool));
  EXPECT_TRUE(is_block_dtype(DType::kQ4_0));
  EXPECT_TRUE(is_block_dtype(DType::kQ6_K));
}

}  // namespace
}  // namespace sterling
