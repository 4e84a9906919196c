#include "hub/retry.h"

#include <gtest/gtest.h>

namespace sterling::hub {
namespace {

using std::chrono::milliseconds;

TEST(Retries, DoubleUpToALimitAndEnd) {
  const RetryPolicy policy{.attempts = 8, .first_wait = milliseconds(100), .longest_wait = milliseconds(1000)};
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Retries retries(policy, seed);
    for (const std::int64_t most : {100, 200, 400, 800, 1000, 1000, 1000}) {
      const auto wait = retries.after_failure();
      ASSERT_TRUE(wait);
      EXPECT_LE(wait->count(), most);
      EXPECT_GE(wait->count(), most / 2);
    }
    EXPECT_FALSE(retries.after_failure());
  }
}

TEST(Retries, ProgressStartsAnew) {
  Retries retries({.attempts = 2}, 1);
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(retries.after_failure());
    retries.progressed();
  }
  EXPECT_TRUE(retries.after_failure());
  EXPECT_FALSE(retries.after_failure());
}

TEST(Retries, SpreadApart) {
  const RetryPolicy policy{.first_wait = milliseconds(10000), .longest_wait = milliseconds(10000)};
  EXPECT_NE(Retries(policy, 1).after_failure(), Retries(policy, 2).after_failure());
}

TEST(Passing, Statuses) {
  for (const int status : {408, 429, 500, 502, 503, 504, 520}) EXPECT_TRUE(is_passing(status)) << status;
  for (const int status : {200, 302, 400, 401, 403, 404, 410, 416, 501, 505})
    EXPECT_FALSE(is_passing(status)) << status;
}

TEST(RetryAfter, SecondsAndDates) {
  const auto wait = [](std::vector<std::pair<std::string, std::string>> headers) {
    return retry_after({429, std::move(headers)}, 1'700'000'000);
  };
  EXPECT_EQ(wait({{"retry-after", "12"}}), milliseconds(12000));
  EXPECT_EQ(wait({{"retry-after", "0"}}), milliseconds(0));
  EXPECT_EQ(wait({}), std::nullopt);
  EXPECT_EQ(wait({{"retry-after", "soon"}}), std::nullopt);
  EXPECT_EQ(wait({{"retry-after", "-5"}}), milliseconds(0));
  // 1,700,000,000 is Tue, 14 Nov 2023 22:13:20 GMT.
  EXPECT_EQ(wait({{"retry-after", "Tue, 14 Nov 2023 22:13:50 GMT"}}), milliseconds(30000));
  EXPECT_EQ(wait({{"retry-after", "Tue, 14 Nov 2023 22:13:50 GMT"}, {"date", "Tue, 14 Nov 2023 22:13:40 GMT"}}),
            milliseconds(10000));
  EXPECT_EQ(wait({{"retry-after", "Tue, 14 Nov 2023 22:13:00 GMT"}}), milliseconds(0));
  EXPECT_LE(wait({{"retry-after", "99999999999999"}})->count(), std::int64_t{400} * 86400 * 1000);
}

TEST(Gate, TheLatestMomentCounts) {
  Gate gate;
  EXPECT_EQ(gate.remaining().count(), 0);
  gate.close_for(milliseconds(600000));
  gate.close_for(milliseconds(1));
  EXPECT_GT(gate.remaining().count(), 500000);
}

}  // namespace
}  // namespace sterling::hub
