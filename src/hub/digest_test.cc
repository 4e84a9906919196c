#include "hub/digest.h"

#include <gtest/gtest.h>

namespace sterling::hub {
namespace {

// FIPS 180-4's example, and what `git hash-object` gives for the empty file and for "hello\n".
TEST(Digest, PublishedValues) {
  Digest sha(HashKind::kSha256, 3);
  sha.update("a");
  sha.update("bc");
  EXPECT_EQ(sha.finish(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(Digest(HashKind::kGitBlob, 0).finish(), "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
  Digest git(HashKind::kGitBlob, 6);
  git.update("hello\n");
  EXPECT_EQ(git.finish(), "ce013625030ba8dba906f756967f9e9ca394464a");
}

TEST(Digest, KindsByLength) {
  EXPECT_EQ(hash_kind(std::string(64, '0')), HashKind::kSha256);
  EXPECT_EQ(hash_kind(std::string(40, 'f')), HashKind::kGitBlob);
  EXPECT_EQ(hash_kind(std::string(32, '0')), std::nullopt);
  EXPECT_EQ(hash_kind(std::string(64, 'F')), std::nullopt);
  EXPECT_EQ(hash_kind(""), std::nullopt);
}

}  // namespace
}  // namespace sterling::hub
