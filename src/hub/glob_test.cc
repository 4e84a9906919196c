#include "hub/glob.h"

#include <gtest/gtest.h>

namespace sterling::hub {
namespace {

// What Python's fnmatch.fnmatchcase says; tests/hub/interop_test.py compares many more with the library itself.
TEST(Glob, AsFnmatchcase) {
  const struct {
    const char* pattern;
    const char* text;
    bool expected;
  } cases[] = {
      {"*", "", true},
      {"*", "a/b", true},
      {"*.json", "d/c.json", true},
      {"*.json", "c.JSON", false},
      {"?", "", false},
      {"?", "a", true},
      {"?", "\xc3\xa9", true},
      {"??", "\xc3\xa9", false},
      {"[ab]", "b", true},
      {"[!ab]", "b", false},
      {"[a-c]x", "bx", true},
      {"[c-a]", "b", false},
      {"[]]", "]", true},
      {"[!]]", "]", false},
      {"[]", "[]", true},
      {"[", "[", true},
      {"a[", "a[", true},
      {"[a-]", "-", true},
      {"[-a]", "-", true},
      {"a*b*c", "axxbyyc", true},
      {"a*b*c", "axxbyy", false},
      {"", "", true},
      {"", "a", false},
      {"**", "abc", true},
      {"[^a]", "^", true},
      {"[\xc3\xa0-\xc3\xbf]", "\xc3\xa9", true},
  };
  for (const auto& each : cases)
    EXPECT_EQ(matches(each.pattern, each.text), each.expected) << each.pattern << " on " << each.text;
}

TEST(Glob, StarsDoNotExplode) {
  std::string pattern;
  for (int i = 0; i < 200; ++i) pattern += "a*";
  EXPECT_FALSE(matches(pattern + "b", std::string(2000, 'a')));
}

TEST(Selected, ExcludeIsStronger) {
  const std::vector<std::string> none, json{"*.json"}, folder{"d/"};
  EXPECT_TRUE(selected("a.bin", none, none));
  EXPECT_FALSE(selected("a.bin", json, none));
  EXPECT_TRUE(selected("d/a.json", json, none));
  EXPECT_FALSE(selected("d/a.json", json, folder));
  EXPECT_FALSE(selected("d/x/y", none, folder));
  EXPECT_TRUE(selected("d", none, folder));
}

}  // namespace
}  // namespace sterling::hub
