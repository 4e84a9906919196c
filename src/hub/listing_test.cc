#include "hub/listing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sterling::hub {
namespace {

using ::testing::HasSubstr;

constexpr const char* kCommit = "664dba2223947f7bb85c6518f335a1a1fd745aa9";

TEST(Revision, CommitAndNames) {
  const auto info = parse_revision(
      std::string(R"({"id": "a/b", "sha": ")") + kCommit + R"(", "siblings": [{"rfilename": "x/y"}], "other": 1})",
      "S");
  ASSERT_TRUE(info.ok());
  EXPECT_EQ(info->commit, kCommit);
  ASSERT_EQ(info->files.size(), 1u);
  EXPECT_EQ(info->files[0].path, "x/y");
  EXPECT_FALSE(info->files[0].size);
  EXPECT_TRUE(parse_revision(std::string(R"({"sha": ")") + kCommit + "\"}", "S")->files.empty());
}

TEST(Revision, FaultsNameTheField) {
  const auto message = [](std::string_view text) {
    const auto info = parse_revision(text, "S");
    EXPECT_FALSE(info.ok()) << text;
    return info.ok() ? std::string() : info.error().message;
  };
  EXPECT_THAT(message("{}"), HasSubstr("S: sha: expected a commit hash of 40 hexadecimal digits, found nothing"));
  EXPECT_THAT(message(R"({"sha": 7})"), HasSubstr("the number 7"));
  EXPECT_THAT(message(R"({"sha": "main"})"), HasSubstr("main"));
  EXPECT_THAT(message(std::string(R"({"sha": ")") + kCommit + R"(", "siblings": [{"rfilename": 1}]})"),
              HasSubstr("siblings[0].rfilename"));
  message("");
  message("[]");
  message("<html>");
}

TEST(Tree, SizesAndHashes) {
  const auto files = parse_tree_page(
      R"([{"type": "directory", "path": "d", "oid": "x", "size": 0},
          {"type": "file", "path": "d/c.json", "oid": "aa", "size": 12},
          {"type": "file", "path": "m.bin", "oid": "bb", "size": 10, "lfs": {"oid": "cc", "size": 10, "pointerSize": 134}, "xetHash": "dd"}])",
      "S");
  ASSERT_TRUE(files.ok()) << files.error().message;
  ASSERT_EQ(files->size(), 2u);
  EXPECT_EQ((*files)[0].path, "d/c.json");
  EXPECT_EQ((*files)[0].size, 12);
  EXPECT_EQ((*files)[0].hash, "aa");
  EXPECT_EQ((*files)[1].hash, "cc");
}

TEST(Tree, FaultsNameTheField) {
  const auto files = parse_tree_page(R"([{"type": "file", "path": "a", "oid": "x", "size": -1}])", "S");
  ASSERT_FALSE(files.ok());
  EXPECT_THAT(files.error().message, HasSubstr("S: [0].size: expected an integer from 0 to"));
  EXPECT_EQ(files.error().code, ErrorCode::kCorrupt);
}

TEST(Paths, ConflictsAreFoundWhereverTheyStand) {
  const auto check = [](std::initializer_list<const char*> names) {
    std::vector<ListedFile> files;
    for (const char* name : names) files.push_back({name, std::nullopt, {}});
    return check_paths(files);
  };
  EXPECT_TRUE(check({"a", "a.b", "b/c", "b/d", "b-c"}).ok());
  // "a.b" and "a-" sort between "a" and "a/b".
  EXPECT_FALSE(check({"a/b", "a", "a.b", "a-"}).ok());
  EXPECT_FALSE(check({"x/y/z", "x/y"}).ok());
  EXPECT_FALSE(check({"x/y/z", "x"}).ok());
  EXPECT_FALSE(check({"a", "b", "a"}).ok());
  EXPECT_FALSE(check({"a", "../b"}).ok());
}

}  // namespace
}  // namespace sterling::hub
