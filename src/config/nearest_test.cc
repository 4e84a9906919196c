#include "config/nearest.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace sterling::config {
namespace {

TEST(EditDistance, TextbookCases) {
  EXPECT_EQ(edit_distance("", ""), 0u);
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(edit_distance("sunday", "saturday"), 3u);
  EXPECT_EQ(edit_distance("ab", "ba"), 1u);   // one swap, not two substitutions
  EXPECT_EQ(edit_distance("ca", "abc"), 3u);  // the restricted form: unrestricted would say 2
  EXPECT_EQ(edit_distance("--prot", "--port"), 1u);
}

TEST(Nearest, FindsSlipsAndLeavesTheRest) {
  const std::vector<std::string> flags = {"--host", "--port", "--kv-cache-dtype", "--kv-cache-memory", "--threads"};
  EXPECT_EQ(nearest("--prot", flags), "--port");
  EXPECT_EQ(nearest("--kv-cache-dtpye", flags), "--kv-cache-dtype");
  EXPECT_EQ(nearest("--thread", flags), "--threads");
  EXPECT_EQ(nearest("--port", flags), "--port");
  EXPECT_EQ(nearest("--completely-different", flags), "");
  EXPECT_EQ(nearest(std::string(1000000, 'x'), flags), "");
  EXPECT_EQ(nearest("x", std::vector<std::string>{}), "");
}

}  // namespace
}  // namespace sterling::config
