#include "engine/block_pool.h"

#include <set>

#include <gtest/gtest.h>

namespace sterling::engine {
namespace {

TEST(BlockPool, GivesEachIdOnceAndTakesItBack) {
  BlockPool pool(5);
  EXPECT_EQ(pool.total(), 5);
  std::set<std::int32_t> ids;
  for (int i = 0; i < 5; ++i) {
    const auto id = pool.take();
    ASSERT_TRUE(id.has_value());
    EXPECT_TRUE(ids.insert(*id).second);
    EXPECT_EQ(pool.used(), i + 1);
  }
  EXPECT_EQ(*ids.begin(), 0);
  EXPECT_EQ(*ids.rbegin(), 4);
  EXPECT_FALSE(pool.take().has_value());
  pool.release(3);
  EXPECT_EQ(pool.free(), 1);
  EXPECT_EQ(pool.take(), 3);
  for (const std::int32_t id : ids) pool.release(id);
  EXPECT_EQ(pool.used(), 0);
}

TEST(BlockPool, ASharedBlockIsFreeWhenTheLastHolderLetsGo) {
  BlockPool pool(1);
  ASSERT_EQ(pool.take(), 0);
  pool.share(0);
  EXPECT_EQ(pool.references(0), 2);
  pool.release(0);
  EXPECT_EQ(pool.free(), 0);
  EXPECT_FALSE(pool.take().has_value());
  pool.release(0);
  EXPECT_EQ(pool.free(), 1);
  EXPECT_EQ(pool.take(), 0);
  EXPECT_EQ(pool.references(0), 1);
}

TEST(BlockPool, EmptyPoolHasNothing) {
  BlockPool pool(0);
  EXPECT_FALSE(pool.take().has_value());
}

TEST(BlockPoolDeathTest, WrongReleasesAreBugsOfOurs) {
  BlockPool pool(2);
  EXPECT_DEATH(pool.release(0), "");  // not held
  EXPECT_DEATH(pool.release(2), "");  // no such id
  EXPECT_DEATH(pool.share(1), "");    // not held
}

}  // namespace
}  // namespace sterling::engine
