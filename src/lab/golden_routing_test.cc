#include "lab/golden_routing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sterling::lab {
namespace {

// Two layers, three tokens, two experts each.
struct Choices {
  std::vector<std::int32_t> experts{0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5};
  std::vector<float> margins{0.5F, 0.25F, 0.125F, 1.0F, 2.0F, 4.0F};
  std::vector<float> magnitudes = std::vector<float>(6, 8.0F);

  RoutedRun view() const { return {experts, margins, magnitudes}; }
};

TEST(GoldenRouting, OrderWithinATokenIsNoFlip) {
  const Choices a;
  Choices b;
  std::swap(b.experts[0], b.experts[1]);
  EXPECT_TRUE(first_flips(a.view(), b.view(), 3, 0.0).empty());
  EXPECT_EQ(first_flipped_position({}, 3), 3);
  EXPECT_EQ(first_flipped_layer({}, 3, 2), 2);
}

TEST(GoldenRouting, AFlipIsExcusedByItsMarginOfTheUnroundedRun) {
  const Choices a;
  Choices b;
  b.experts[2] = 7;
  b.margins.assign(6, 0.0F);
  for (const double bound : {0.0157, 0.0156}) {  // 2 * bound * 8 around 0.25
    const auto flips = first_flips(a.view(), b.view(), 3, bound);
    ASSERT_EQ(flips.size(), 1U);
    EXPECT_EQ(flips[0].layer, 0);
    EXPECT_EQ(flips[0].position, 1);
    EXPECT_EQ(flips[0].margin, 0.25);
    EXPECT_EQ(flips[0].excused(), bound == 0.0157);
  }
}

TEST(GoldenRouting, WhatFollowsAFlipInALowerLayerIsConsequence) {
  const Choices a;
  Choices b;
  b.experts[2] = 7;                  // layer 0, token 1
  b.experts[8] = b.experts[10] = 7;  // layer 1, tokens 1 and 2: consequences
  auto flips = first_flips(a.view(), b.view(), 3, 1.0);
  EXPECT_EQ(flips.size(), 1U);
  b.experts[6] = 7;  // layer 1, token 0: nothing before it flipped
  flips = first_flips(a.view(), b.view(), 3, 1.0);
  ASSERT_EQ(flips.size(), 2U);
  EXPECT_EQ(flips[1].layer, 1);
  EXPECT_EQ(flips[1].position, 0);
  EXPECT_EQ(first_flipped_position(flips, 3), 0);
  EXPECT_EQ(first_flipped_layer(flips, 3, 2), 0);
  EXPECT_EQ(first_flipped_layer(flips, 1, 2), 1);
}

}  // namespace
}  // namespace sterling::lab
