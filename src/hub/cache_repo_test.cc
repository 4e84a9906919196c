#include "hub/cache_repo.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hub/test_folder.h"

namespace sterling::hub {
namespace {

using ::testing::HasSubstr;

const std::string kCommit = "664dba2223947f7bb85c6518f335a1a1fd745aa9";

class CacheRepoTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(repo_.prepare(kCommit).ok()); }
  TestFolder folder_;
  CacheRepo repo_{folder_.path(), RepoId{"org", "name"}};
};

TEST_F(CacheRepoTest, LinksAreRelativeAndReplaced) {
  folder_.write("models--org--name/blobs/aaa", "one");
  folder_.write("models--org--name/blobs/bbb", "two");
  ASSERT_TRUE(repo_.link(kCommit, "d/e/f.txt", "aaa").ok());
  ASSERT_TRUE(repo_.link(kCommit, "top.txt", "aaa").ok());
  const auto top = repo_.snapshot(kCommit) / "top.txt";
  EXPECT_EQ(std::filesystem::read_symlink(top), "../../blobs/aaa");
  EXPECT_EQ(std::filesystem::read_symlink(repo_.snapshot(kCommit) / "d/e/f.txt"), "../../../../blobs/aaa");
  EXPECT_EQ(folder_.read("models--org--name/snapshots/" + kCommit + "/d/e/f.txt"), "one");
  ASSERT_TRUE(repo_.link(kCommit, "top.txt", "bbb").ok());
  EXPECT_EQ(repo_.linked(kCommit, "top.txt")->blob, "bbb");
  EXPECT_EQ(repo_.linked(kCommit, "top.txt")->size, 3);
  // A link whose blob is gone is no file.
  std::filesystem::remove(repo_.blob("bbb"));
  EXPECT_FALSE(repo_.linked(kCommit, "top.txt"));
  // Nothing else was left behind.
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(repo_.snapshot(kCommit)),
                          std::filesystem::directory_iterator()),
            2);
}

TEST_F(CacheRepoTest, FoldersThatLeadOutAreRefused) {
  std::filesystem::create_directory(folder_.path() / "outside");
  std::filesystem::create_symlink(folder_.path() / "outside", repo_.snapshot(kCommit) / "d");
  const Status status = repo_.link(kCommit, "d/x", "aaa");
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error().message, HasSubstr("in the way"));
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path() / "outside"));
}

TEST_F(CacheRepoTest, References) {
  ASSERT_TRUE(repo_.write_reference("refs/pr/1", kCommit).ok());
  EXPECT_EQ(folder_.read("models--org--name/refs/refs/pr/1"), kCommit);
  ASSERT_TRUE(repo_.write_reference("main", std::string(40, 'a')).ok());
  ASSERT_TRUE(repo_.write_reference("main", kCommit).ok());
  EXPECT_EQ(folder_.read("models--org--name/refs/main"), kCommit);
  ASSERT_TRUE(repo_.write_reference(kCommit, kCommit).ok());
  EXPECT_FALSE(std::filesystem::exists(folder_.path() / "models--org--name/refs" / kCommit));
}

TEST_F(CacheRepoTest, OneHolderOfALock) {
  auto first = repo_.try_lock("aaa");
  ASSERT_TRUE(first.ok());
  EXPECT_TRUE(first->valid());
  EXPECT_TRUE(std::filesystem::exists(folder_.path() / ".locks/models--org--name/aaa.lock"));
  EXPECT_FALSE(repo_.try_lock("aaa")->valid());
  EXPECT_TRUE(repo_.try_lock("bbb")->valid());
  first->reset();
  EXPECT_TRUE(repo_.try_lock("aaa")->valid());
}

TEST_F(CacheRepoTest, FreeSpaceOfWhatIsNotThereYet) {
  const auto there = free_bytes(folder_.path());
  const auto below = free_bytes(folder_.path() / "a/b/c");
  ASSERT_TRUE(there.ok());
  ASSERT_TRUE(below.ok());
  EXPECT_GT(*there, 0);
  EXPECT_GT(*below, 0);
}

}  // namespace
}  // namespace sterling::hub
