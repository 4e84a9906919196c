#include "hub/names.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sterling::hub {
namespace {

using ::testing::HasSubstr;

TEST(ModelId, Accepted) {
  const auto plain = parse_model_id("Qwen/Qwen3.5-4B_x");
  ASSERT_TRUE(plain.ok());
  EXPECT_EQ(plain->repo.org, "Qwen");
  EXPECT_EQ(plain->repo.name, "Qwen3.5-4B_x");
  EXPECT_EQ(plain->repo.folder(), "models--Qwen--Qwen3.5-4B_x");
  EXPECT_EQ(plain->revision, "");
  const auto at = parse_model_id("org/name@refs/pr/1");
  ASSERT_TRUE(at.ok());
  EXPECT_EQ(at->revision, "refs/pr/1");
  const auto alone = parse_model_id("gpt2");
  ASSERT_TRUE(alone.ok());
  EXPECT_EQ(alone->repo.text(), "gpt2");
  EXPECT_EQ(alone->repo.folder(), "models--gpt2");
}

TEST(ModelId, Refused) {
  for (const char* text : {"",
                           "/",
                           "org/",
                           "/name",
                           "a/b/c",
                           "../name",
                           "org/..",
                           "org/na me",
                           "org/-name",
                           "org/name.",
                           "org/a--b",
                           "org/a..b",
                           "org/n\\x",
                           "org/name@",
                           "org/name@../x",
                           "org/name@/x",
                           "org/name@a\nb",
                           "~/models",
                           "./x",
                           "org/n\xc3\xa9"}) {
    const auto id = parse_model_id(text);
    ASSERT_FALSE(id.ok()) << text;
    EXPECT_EQ(id.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(id.error().message, HasSubstr("ORG/NAME"));
  }
  EXPECT_FALSE(parse_model_id("org/" + std::string(97, 'a')).ok());
}

TEST(RepoPath, OnlyWhatStaysBelow) {
  for (const char* path : {"config.json", "a/b/c.bin", "...", "a..b", ".gitattributes", "a b", "\xc3\xa9.txt"}) {
    EXPECT_TRUE(check_repo_path(path).ok()) << path;
  }
  for (const std::string& path :
       {std::string(""), std::string("/etc/passwd"), std::string(".."), std::string("../x"), std::string("a/../x"),
        std::string("a/.."), std::string("./a"), std::string("a//b"), std::string("a/"), std::string("a\\b"),
        std::string("a\0b", 3), std::string("a\nb"), std::string("\x7f"), std::string("\xff"), std::string(256, 'a')}) {
    const Status status = check_repo_path(path);
    ASSERT_FALSE(status.ok()) << path;
    EXPECT_EQ(status.error().code, ErrorCode::kCorrupt);
    // Nothing of it reaches a terminal as a control character.
    for (const char c : status.error().message) EXPECT_GE(static_cast<unsigned char>(c), 0x20);
  }
  EXPECT_TRUE(check_repo_path(std::string(255, 'a')).ok());
}

TEST(BlobName, FromEtags) {
  const std::string sum(64, 'a');
  for (const std::string& etag : {sum, "\"" + sum + "\"", "W/\"" + sum + "\""}) {
    const auto name = blob_name(etag);
    ASSERT_TRUE(name.ok()) << etag;
    EXPECT_EQ(*name, sum);
  }
  EXPECT_EQ(*blob_name("\"5d41402a-12\""), "5d41402a-12");
  for (const std::string& etag : std::vector<std::string>{"", "\"\"", "\"..\"", "\"../x\"", "\"a/b\"", "\".hidden\"",
                                                          "\"a b\"", "\"a.incomplete\"", "\"a", "\"a\nb\"", "-x"}) {
    EXPECT_FALSE(blob_name(etag).ok()) << etag;
  }
  EXPECT_FALSE(blob_name(std::string(129, 'a')).ok());
}

TEST(CommitHash, LowerCaseHexadecimal) {
  EXPECT_TRUE(is_commit_hash("664dba2223947f7bb85c6518f335a1a1fd745aa9"));
  EXPECT_FALSE(is_commit_hash("664DBA2223947f7bb85c6518f335a1a1fd745aa9"));
  EXPECT_FALSE(is_commit_hash("664dba2223947f7bb85c6518f335a1a1fd745aa"));
  EXPECT_FALSE(is_commit_hash("main"));
}

}  // namespace
}  // namespace sterling::hub
