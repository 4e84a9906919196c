#include "cli/memory_ledger.h"

#include <gtest/gtest.h>

namespace sterling::cli {
namespace {

TEST(MemoryLedger, OnePerCentIsTheLimit) {
  std::vector<std::string> lines;
  const LogSink log = [&lines](LogLevel, std::string_view line) { lines.emplace_back(line); };
  EXPECT_TRUE(check_ledger({{"weights", 1000, 1010}, {"KV pool", 0, 0}, {"workspace", 500, 495}}, log).ok());
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_NE(lines[0].find("weights 1000 planned, 1010 actual"), std::string::npos) << lines[0];
  EXPECT_NE(lines[0].find("total 1500 planned, 1505 actual"), std::string::npos) << lines[0];
  EXPECT_EQ(lines[0].find("KV pool"), std::string::npos);
  const Status more = check_ledger({{"weights", 1000, 1011}}, log);
  ASSERT_FALSE(more.ok());
  EXPECT_EQ(more.error().where, "memory ledger");
  EXPECT_FALSE(check_ledger({{"KV pool", 1000, 989}}, log).ok());
  EXPECT_FALSE(check_ledger({{"recurrent state", 0, 1}}, log).ok());
}

}  // namespace
}  // namespace sterling::cli
