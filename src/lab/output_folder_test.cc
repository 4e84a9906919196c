#include "lab/output_folder.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <utility>

#include <gtest/gtest.h>

namespace sterling::lab {
namespace {

namespace fs = std::filesystem;

class OutputFolderTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "output_folder.XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
  }
  void TearDown() override {
    std::error_code ignored;
    fs::remove_all(root_, ignored);
  }
  fs::path root_;
};

TEST_F(OutputFolderTest, GoesAwayUnlessKept) {
  {
    auto folder = OutputFolder::check(root_ / "a" / "b");
    ASSERT_TRUE(folder);
    ASSERT_TRUE(folder->create(1));
    ASSERT_TRUE(folder->write("x", "text"));
    EXPECT_TRUE(fs::exists(root_ / "a/b/x"));
  }
  EXPECT_FALSE(fs::exists(root_ / "a"));
  {
    auto folder = OutputFolder::check(root_ / "a/b/");
    ASSERT_TRUE(folder);
    OutputFolder moved = std::move(*folder);
    ASSERT_TRUE(moved.create(1));
    ASSERT_TRUE(moved.write("x", "text"));
    ASSERT_TRUE(moved.copy(root_ / "a/b/x", "y"));
    EXPECT_EQ(moved.files(), (std::vector<std::string>{"x", "y"}));
    moved.keep();
  }
  std::ifstream in(root_ / "a/b/y");
  std::string text;
  in >> text;
  EXPECT_EQ(text, "text");
}

TEST_F(OutputFolderTest, AnEmptyFolderIsUsedAndLeft) {
  fs::create_directory(root_ / "empty");
  {
    auto folder = OutputFolder::check(root_ / "empty");
    ASSERT_TRUE(folder);
    ASSERT_TRUE(folder->create(1));
    ASSERT_TRUE(folder->write("x", ""));
  }
  EXPECT_TRUE(fs::exists(root_ / "empty"));
  EXPECT_TRUE(fs::is_empty(root_ / "empty"));
}

TEST_F(OutputFolderTest, RefusesWhatIsThere) {
  std::ofstream(root_ / "file") << "mine";
  const auto file = OutputFolder::check(root_ / "file");
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().where, "--out");
  const auto full = OutputFolder::check(root_);
  ASSERT_FALSE(full);
  EXPECT_NE(full.error().message.find("not empty"), std::string::npos);
}

TEST_F(OutputFolderTest, NoRoom) {
  auto folder = OutputFolder::check(root_ / "huge");
  ASSERT_TRUE(folder);
  const Status status = folder->create(std::int64_t{1} << 60);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kResourceExhausted);
  EXPECT_FALSE(fs::exists(root_ / "huge"));
}

}  // namespace
}  // namespace sterling::lab
