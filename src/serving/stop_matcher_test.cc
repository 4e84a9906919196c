#include "serving/stop_matcher.h"

#include <random>

#include <gtest/gtest.h>

namespace sterling::serving {
namespace {

std::string feed(StopMatcher& matcher, std::string_view text, std::size_t piece) {
  std::string out;
  for (std::size_t at = 0; at < text.size(); at += piece) out += matcher.push(text.substr(at, piece));
  return out + matcher.flush();
}

TEST(StopMatcher, CutsBeforeTheMatchWhereverThePiecesEnd) {
  for (std::size_t piece = 1; piece < 20; ++piece) {
    StopMatcher matcher({"END"}, false);
    EXPECT_EQ(feed(matcher, "an ENDless END", piece), "an ");
    EXPECT_EQ(matcher.matched(), "END");
  }
}

TEST(StopMatcher, HoldsBackWhatMayBecomeAMatchAndNothingElse) {
  StopMatcher matcher({"\n\nUser:"}, false);
  EXPECT_EQ(matcher.push("a\n"), "a");
  EXPECT_EQ(matcher.push("b"), "\nb");
  EXPECT_EQ(matcher.push("\n\nUse"), "");
  EXPECT_EQ(matcher.push("less"), "\n\nUseless");
  EXPECT_EQ(matcher.push("\n\n\nUser"), "\n");
  EXPECT_EQ(matcher.flush(), "\n\nUser");
  EXPECT_FALSE(matcher.matched());
}

TEST(StopMatcher, FallsBackInsideItsOwnPattern) {
  StopMatcher matcher({"aab"}, false);
  EXPECT_EQ(feed(matcher, "aaaab!", 1), "aa");
  StopMatcher other({"abcabd"}, false);
  EXPECT_EQ(feed(other, "abcabcabd", 1), "abc");
}

TEST(StopMatcher, TakesTheMatchThatEndsFirstAndOfThoseTheLongest) {
  StopMatcher matcher({"cde", "abcdef", "bcde"}, false);
  EXPECT_EQ(feed(matcher, "xabcdef", 1), "xa");
  EXPECT_EQ(matcher.matched(), "bcde");
}

TEST(StopMatcher, IncludesTheMatchWhereAsked) {
  StopMatcher matcher({"."}, true);
  EXPECT_EQ(matcher.push("One. Two."), "One.");
  EXPECT_EQ(matcher.push(" Three"), "");
}

TEST(StopMatcher, PassesOverMatchesThatMayNotCountYet) {
  StopMatcher matcher({"x"}, false);
  EXPECT_EQ(matcher.push("axb", false), "axb");
  EXPECT_EQ(matcher.push("cxd", true), "c");
}

TEST(StopMatcher, AgreesWithPlainSearchOnRandomTexts) {
  std::mt19937 random(7);
  for (int round = 0; round < 3000; ++round) {
    const auto word = [&](std::size_t most) {
      std::string out(1 + random() % most, 'a');
      for (char& c : out) c = static_cast<char>('a' + random() % 2);
      return out;
    };
    const std::vector<std::string> stops = {word(4), word(5)};
    const std::string text = word(24);
    std::string expected = text;  // the shortest prefix that ends with a stop string, less the longest such string
    for (std::size_t end = 1; end <= text.size() && expected == text; ++end) {
      std::size_t longest = 0;
      for (const std::string& s : stops) {
        if (end >= s.size() && text.compare(end - s.size(), s.size(), s) == 0) longest = std::max(longest, s.size());
      }
      if (longest > 0) {
        expected = text.substr(0, end - longest);
        break;
      }
    }
    StopMatcher matcher(stops, false);
    EXPECT_EQ(feed(matcher, text, 1 + random() % 5), expected) << stops[0] << ' ' << stops[1] << ' ' << text;
  }
}

}  // namespace
}  // namespace sterling::serving
