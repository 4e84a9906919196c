#include "engine/philox.h"

#include <set>

#include <gtest/gtest.h>

namespace sterling::engine {
namespace {

// The known answers that the authors publish with their library Random123 (philox4x32, 10 rounds).
TEST(Philox, PublishedVectors) {
  EXPECT_EQ(philox4x32_10({0, 0, 0, 0}, {0, 0}), (PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32_10({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  // Digits of pi.
  EXPECT_EQ(philox4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(UniformDraw, IsTheTop53BitsOfTheBlock) {
  EXPECT_EQ(uniform_draw(0, 0, 0), static_cast<double>(0x6627e8d5e169c58d >> 11) * 0x1p-53);
  // Counter words: position, draw, stream low, stream high; key: seed low, seed high.
  EXPECT_EQ(uniform_draw(0x299f31d0a4093822, 0x0370734413198a2e, 0x243f6a88, 0x85a308d3),
            static_cast<double>(0xd16cfe0994fdcceb >> 11) * 0x1p-53);
}

TEST(UniformDraw, EveryArgumentMatters) {
  std::set<double> draws;
  for (int i = 0; i < 64; ++i) {
    draws.insert(uniform_draw(std::uint64_t{1} << i, 0, 0));
    draws.insert(uniform_draw(0, std::uint64_t{1} << i, 0));
    if (i < 31) draws.insert(uniform_draw(0, 0, 1 << i));
    if (i < 32) draws.insert(uniform_draw(0, 0, 0, 1u << i));
  }
  EXPECT_EQ(draws.size(), 64u + 64u + 31u + 32u);
  EXPECT_GE(*draws.begin(), 0.0);
  EXPECT_LT(*draws.rbegin(), 1.0);
}

}  // namespace
}  // namespace sterling::engine
