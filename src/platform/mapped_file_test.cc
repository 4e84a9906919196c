#include "platform/mapped_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sterling::platform {
namespace {

using ::testing::HasSubstr;

class MappedFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "sterling_mapped_XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path write(const std::string& name, const std::string& bytes) {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
    return folder_ / name;
  }

  std::filesystem::path folder_;
};

std::string text(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.data().data()), file.data().size()};
}

TEST_F(MappedFileTest, ShowsTheBytesAndSurvivesMovesAndRelease) {
  const std::string bytes(100000, 'x');
  auto opened = MappedFile::open(write("a", bytes));
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  MappedFile file = std::move(opened).value();
  EXPECT_EQ(text(file), bytes);

  MappedFile moved(std::move(file));
  EXPECT_TRUE(file.data().empty());  // NOLINT(bugprone-use-after-move): the moved-from state is specified
  EXPECT_EQ(text(moved), bytes);

  moved.advise_sequential(moved.data());
  moved.advise_will_need(moved.data().subspan(5000, 10));
  moved.release(moved.data().subspan(4097, 50000));
  EXPECT_EQ(text(moved), bytes);

  auto second = MappedFile::open(write("b", "other"));
  ASSERT_TRUE(second.ok());
  moved = std::move(second).value();
  EXPECT_EQ(text(moved), "other");
  EXPECT_EQ(moved.path(), (folder_ / "b").string());
}

TEST_F(MappedFileTest, AnEmptyFileIsEmpty) {
  auto opened = MappedFile::open(write("empty", ""));
  ASSERT_TRUE(opened.ok());
  EXPECT_TRUE(opened->data().empty());
  opened->release(opened->data());
}

TEST_F(MappedFileTest, RangesOfOtherMemoryAreNotContained) {
  auto opened = MappedFile::open(write("a", "0123456789"));
  ASSERT_TRUE(opened.ok());
  const std::byte elsewhere[4] = {};
  EXPECT_TRUE(opened->contains(opened->data().subspan(10)));
  EXPECT_TRUE(opened->contains(opened->data().subspan(3, 7)));
  EXPECT_FALSE(opened->contains(elsewhere));
  EXPECT_FALSE(opened->contains({opened->data().data() + 3, 8}));
  opened->release(elsewhere);  // ignored
}

TEST_F(MappedFileTest, NamesWhatCannotBeOpened) {
  const auto absent = MappedFile::open(folder_ / "absent.bin");
  ASSERT_FALSE(absent.ok());
  EXPECT_EQ(absent.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(absent.error().message, HasSubstr("absent.bin: no such file"));

  const auto below = MappedFile::open(write("file", "x") / "below");
  ASSERT_FALSE(below.ok());
  EXPECT_EQ(below.error().code, ErrorCode::kNotFound);

  const auto folder = MappedFile::open(folder_);
  ASSERT_FALSE(folder.ok());
  EXPECT_EQ(folder.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(folder.error().message, HasSubstr("is a directory"));

  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  const auto pipe = MappedFile::open(folder_ / "pipe");  // must not hang
  ASSERT_FALSE(pipe.ok());
  EXPECT_THAT(pipe.error().message, HasSubstr("not a regular file"));

  const auto loop = folder_ / "loop";
  std::filesystem::create_symlink(loop, loop);
  const auto looped = MappedFile::open(loop);
  ASSERT_FALSE(looped.ok());
  EXPECT_EQ(looped.error().code, ErrorCode::kIo);
}

TEST_F(MappedFileTest, NamesAFileThatMayNotBeRead) {
  const auto path = write("secret", "x");
  ASSERT_EQ(::chmod(path.c_str(), 0), 0);
  ASSERT_EQ(::chmod(folder_.c_str(), 0755), 0);
  // Root may read everything, so become somebody else for the call.
  const bool root = ::geteuid() == 0;
  if (root && ::seteuid(65534) != 0) GTEST_SKIP() << "cannot give up root";
  const auto opened = MappedFile::open(path);
  if (root) {
    ASSERT_EQ(::seteuid(0), 0);
  }
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.error().code, ErrorCode::kPermission);
  EXPECT_THAT(opened.error().message, HasSubstr("secret: may not be read"));
}

}  // namespace
}  // namespace sterling::platform
