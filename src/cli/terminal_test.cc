#include "cli/terminal.h"

#include <gtest/gtest.h>

namespace sterling::cli {
namespace {

TEST(TerminalFilter, TextStays) {
  TerminalFilter filter;
  const std::string text = "Grüße,\t日本語 🙂 ©\n";
  EXPECT_EQ(filter.filter(text), text);
}

TEST(TerminalFilter, ControlCharactersAreReplaced) {
  TerminalFilter filter;
  EXPECT_EQ(filter.filter("a\x1b[2Jb"), "a\xEF\xBF\xBD[2Jb");
  EXPECT_EQ(filter.filter("\x07\x7f"), "\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(filter.filter("\xC2\x9B"
                          "31m"),
            "\xEF\xBF\xBD"
            "31m");  // C1: an escape sequence in one character
  EXPECT_EQ(filter.filter("line\r\n"), "line\n");
}

TEST(TerminalFilter, ACharacterCutInTwo) {
  TerminalFilter filter;
  std::string result = filter.filter("\xC2");
  result += filter.filter("\xA9");
  EXPECT_EQ(result, "©");
  result = filter.filter("\xC2");
  result += filter.filter("\x9B");
  EXPECT_EQ(result, "\xEF\xBF\xBD");
}

}  // namespace
}  // namespace sterling::cli
