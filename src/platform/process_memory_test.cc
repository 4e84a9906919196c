#include "platform/process_memory.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include "platform/aligned_buffer.h"

namespace sterling::platform {
namespace {

class FakeRoot : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "sterling_memory_XXXXXX").string();
    root_ = mkdtemp(pattern.data());
    std::filesystem::create_directories(root_ + "/proc/self");
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void write(const std::string& text) const { std::ofstream(root_ + "/proc/self/status") << text; }

  std::string root_;
};

TEST_F(FakeRoot, KilobytesBecomeBytes) {
  write("Name:\tsterling\nVmPeak:\t  999 kB\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\n");
  const auto memory = read_process_memory(root_);
  ASSERT_TRUE(memory.ok());
  EXPECT_EQ(memory->resident, 1024 * 1024);
  EXPECT_EQ(memory->peak_resident, 2048 * 1024);
}

TEST_F(FakeRoot, RefusesWhatIsNotThere) {
  EXPECT_EQ(read_process_memory(root_).error().code, ErrorCode::kIo);
  write("VmHWM:\t2048 kB\n");
  EXPECT_EQ(read_process_memory(root_).error().code, ErrorCode::kIo);
  write("VmHWM:\t2048 kB\nVmRSS:\tmany kB\n");
  EXPECT_EQ(read_process_memory(root_).error().code, ErrorCode::kIo);
  write("VmHWM:\t2048 MB\nVmRSS:\t1 MB\n");
  EXPECT_EQ(read_process_memory(root_).error().code, ErrorCode::kIo);
}

TEST(ProcessMemory, ThePeakRemembersWhatWasFreedUntilItIsReset) {
  constexpr std::int64_t kBytes = 64 << 20;
  if (!reset_peak_resident()) GTEST_SKIP() << "/proc/self/clear_refs can't be written here";
  const auto before = read_process_memory();
  ASSERT_TRUE(before.ok()) << before.error().message;
  {
    auto buffer = AlignedBuffer::allocate(kBytes, "test");
    ASSERT_TRUE(buffer.ok());
    for (std::int64_t at = 0; at < kBytes; at += 4096) buffer->data()[at] = std::byte{1};
  }
  const auto after = read_process_memory();
  ASSERT_TRUE(after.ok());
  EXPECT_GE(after->peak_resident, before->resident + kBytes * 9 / 10);
  EXPECT_LT(after->resident, before->resident + kBytes / 2);
  ASSERT_TRUE(reset_peak_resident());
  EXPECT_LT(read_process_memory()->peak_resident, before->resident + kBytes / 2);
}

}  // namespace
}  // namespace sterling::platform
