#include "platform/aligned_buffer.h"

#include <algorithm>
#include <cstdint>

#include <gtest/gtest.h>

namespace sterling::platform {
namespace {

bool all_zero(const std::byte* data, std::size_t bytes) {
  return std::all_of(data, data + bytes, [](std::byte b) { return b == std::byte{0}; });
}

TEST(AlignedBuffer, IsAlignedZeroedAndPadded) {
  for (const std::size_t bytes :
       {std::size_t{1}, std::size_t{63}, std::size_t{64}, std::size_t{65}, std::size_t{1000},
        AlignedBuffer::kHugePageBytes - 1, AlignedBuffer::kHugePageBytes, AlignedBuffer::kHugePageBytes * 3 + 5}) {
    auto buffer = AlignedBuffer::allocate(bytes, "test");
    ASSERT_TRUE(buffer.ok());
    EXPECT_EQ(buffer->size(), bytes);
    const std::size_t unit =
        bytes >= AlignedBuffer::kHugePageBytes ? AlignedBuffer::kHugePageBytes : AlignedBuffer::kAlignment;
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer->data()) % unit, 0u) << bytes;
    EXPECT_EQ(buffer->allocated_bytes(), (bytes + unit - 1) / unit * unit);
    EXPECT_EQ(AlignedBuffer::padded_bytes(bytes), buffer->allocated_bytes());
    EXPECT_TRUE(all_zero(buffer->data(), buffer->allocated_bytes())) << bytes;
    std::fill_n(buffer->data(), buffer->allocated_bytes(), std::byte{0xff});  // all of it is ours
  }
}

// Memory that was used and freed comes back zeroed.
TEST(AlignedBuffer, ReusedMemoryIsZeroed) {
  for (int round = 0; round < 20; ++round) {
    auto buffer = AlignedBuffer::allocate(4096, "test");
    ASSERT_TRUE(buffer.ok());
    EXPECT_TRUE(all_zero(buffer->data(), 4096));
    std::fill_n(buffer->data(), 4096, std::byte{0x5a});
  }
}

TEST(AlignedBuffer, NothingForNothing) {
  auto buffer = AlignedBuffer::allocate(0, "test");
  ASSERT_TRUE(buffer.ok());
  EXPECT_TRUE(buffer->empty());
  EXPECT_EQ(buffer->data(), nullptr);
  EXPECT_TRUE(buffer->as<float>().empty());
}

TEST(AlignedBuffer, MovesOwnership) {
  auto made = AlignedBuffer::allocate_array<float>(100, "test");
  ASSERT_TRUE(made.ok());
  AlignedBuffer first = std::move(made).value();
  ASSERT_EQ(first.as<float>().size(), 100u);
  first.as<float>()[99] = 3.5f;
  AlignedBuffer second = std::move(first);
  EXPECT_TRUE(first.empty());  // NOLINT(bugprone-use-after-move): a moved-from buffer is empty, by contract
  EXPECT_EQ(second.as<float>()[99], 3.5f);
  first = std::move(second);
  EXPECT_EQ(first.as<float>()[99], 3.5f);
}

TEST(AlignedBuffer, FailureNamesThePurposeAndTheBytes) {
  const std::size_t impossible = std::size_t{1} << 60;
  for (const auto& failed : {AlignedBuffer::allocate(impossible, "KV pool"),
                             AlignedBuffer::allocate_array<float>(impossible / 4, "KV pool")}) {
    ASSERT_FALSE(failed.ok());
    EXPECT_EQ(failed.error().code, ErrorCode::kResourceExhausted);
    EXPECT_NE(failed.error().message.find("KV pool"), std::string::npos);
    EXPECT_NE(failed.error().message.find("1152921504606846976"), std::string::npos) << failed.error().message;
  }
}

TEST(AlignedBuffer, SizesThatOverflowAreRefused) {
  const std::size_t most = std::numeric_limits<std::size_t>::max();
  EXPECT_FALSE(AlignedBuffer::allocate(most, "x").ok());
  EXPECT_FALSE(AlignedBuffer::allocate(most - AlignedBuffer::kHugePageBytes, "x").ok());
  EXPECT_FALSE(AlignedBuffer::allocate_array<double>(most / 2, "x").ok());
  EXPECT_FALSE(AlignedBuffer::allocate_array<double>(most / 8 + 2, "x").ok());  // would wrap to 8 bytes
}

}  // namespace
}  // namespace sterling::platform
