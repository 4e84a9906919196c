#include "config/units.h"

#include <map>
#include <string>

#include <gtest/gtest.h>

namespace sterling::config {
namespace {

TEST(ParseBytes, NumbersAndSuffixes) {
  const std::map<std::string, std::uint64_t> good = {
      {"0", 0},
      {"1", 1},
      {"12345678901234", 12345678901234u},
      {"512B", 512},
      {"1KiB", 1024},
      {"1kib", 1024},
      {"8 GiB", 8589934592u},
      {"1.5MiB", 1572864},
      {"96GB", 96000000000u},
      {"500MB", 500000000},
      {"1.1KB", 1100},
      {"2TB", 2000000000000u},
      {"1TiB", 1099511627776u},
      {"17.4GiB", 18683107737u},  // 17.4 * 2^30 = 18683107737.6
      {"9223372036854775807", 9223372036854775807u},
  };
  for (const auto& [text, bytes] : good) EXPECT_EQ(parse_bytes(text), bytes) << text;
}

TEST(ParseBytes, RefusesWhatIsNoSize) {
  for (const char* text : {"",
                           " ",
                           "GiB",
                           "-1",
                           "+1",
                           "1G",
                           "8g",
                           "1k",
                           "1.",
                           ".5GiB",
                           "1.5",
                           "1.5B",
                           "1e9",
                           "0x10",
                           "1 2",
                           "1  GiB",
                           "1GiB ",
                           " 1GiB",
                           "nan",
                           "9223372036854775808",
                           "8388608TiB",
                           "99999999999999999999",
                           "9000000000GiB",
                           "1GiBs"}) {
    EXPECT_FALSE(parse_bytes(text).has_value()) << text;
  }
}

TEST(FormatBytes, LargestUnitRoundedDown) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1024), "1 KiB");
  EXPECT_EQ(format_bytes(1536), "1.5 KiB");
  EXPECT_EQ(format_bytes((1u << 20) - 1), "1023.999 KiB");
  EXPECT_EQ(format_bytes(18683107737u), "17.399 GiB");
  EXPECT_EQ(format_bytes(1288490189), "1.2 GiB");
  EXPECT_EQ(format_bytes(std::uint64_t{5} << 50), "5120 TiB");
}

TEST(ParseSeconds, NumbersAndSuffixes) {
  const std::map<std::string, double> good = {{"0", 0},    {"30", 30},   {"2.5", 2.5}, {"500ms", 0.5},
                                              {"5m", 300}, {"1h", 3600}, {"10S", 10},  {"1.5 h", 5400}};
  for (const auto& [text, seconds] : good) {
    ASSERT_TRUE(parse_seconds(text).has_value()) << text;
    EXPECT_DOUBLE_EQ(*parse_seconds(text), seconds) << text;
  }
  for (const char* text : {"", "s", "-1", "1d", "1.", "inf", "nan", "1000000001", "1 m s", "1e3"}) {
    EXPECT_FALSE(parse_seconds(text).has_value()) << text;
  }
}

}  // namespace
}  // namespace sterling::config
