#include "lab/audit_state.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

namespace sterling::lab {
namespace {

namespace fs = std::filesystem;

struct Folder {
  fs::path path = fs::path(testing::TempDir()) / ("audit_state_" + std::to_string(::getpid()));
  Folder() { fs::create_directories(path); }
  ~Folder() { fs::remove_all(path); }
  std::string file() const { return (path / "state").string(); }
};

PromptCost cost(int rows, double first) {
  PromptCost out;
  for (int i = 0; i < rows; ++i) {
    out.rows.push_back({first + i * 0.1, -1.0 / 3.0, -0.7, 0.5F, i, i + 1, 0});
  }
  out.greedy = {32, rows % 2 == 0 ? -1 : rows, 0.25F};
  return out;
}

void expect_equal(const PromptCost* found, const PromptCost& wanted) {
  ASSERT_NE(found, nullptr);
  ASSERT_EQ(found->rows.size(), wanted.rows.size());
  for (std::size_t i = 0; i < wanted.rows.size(); ++i) {
    EXPECT_EQ(found->rows[i].kl, wanted.rows[i].kl);
    EXPECT_EQ(found->rows[i].choice_top, wanted.rows[i].choice_top);
  }
  EXPECT_EQ(found->greedy.first_change, wanted.greedy.first_change);
  EXPECT_EQ(found->greedy.margin, wanted.greedy.margin);
}

TEST(AuditState, KeepsWhatWasFinished) {
  const Folder folder;
  {
    auto state = AuditState::open(folder.file(), "k1");
    ASSERT_TRUE(state.ok());
    ASSERT_TRUE(state->append(0, 0, cost(3, 0.5)).ok());
    ASSERT_TRUE(state->append(1, 0, cost(0, 0.0)).ok());
    ASSERT_TRUE(state->append(0, 1, cost(4, 1.5)).ok());
  }
  auto again = AuditState::open(folder.file(), "k1");
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->finished(), 3U);
  expect_equal(again->find(0, 0), cost(3, 0.5));
  expect_equal(again->find(1, 0), cost(0, 0.0));
  expect_equal(again->find(0, 1), cost(4, 1.5));
  EXPECT_EQ(again->find(1, 1), nullptr);
}

// Whatever byte the writer was killed at, what was finished before stays and writing goes on.
TEST(AuditState, ARecordThatWasCutOffIsDroppedWhereverItWasCut) {
  const Folder folder;
  std::uintmax_t one = 0;
  {
    auto state = AuditState::open(folder.file(), "k1");
    ASSERT_TRUE(state->append(0, 0, cost(2, 0.5)).ok());
    one = fs::file_size(folder.file());
    ASSERT_TRUE(state->append(0, 1, cost(2, 0.6)).ok());
  }
  std::ifstream in(folder.file(), std::ios::binary);
  const std::string whole{std::istreambuf_iterator<char>(in), {}};
  for (std::size_t length = 0; length < whole.size(); ++length) {
    std::ofstream(folder.file(), std::ios::binary | std::ios::trunc) << whole.substr(0, length);
    auto state = AuditState::open(folder.file(), "k1");
    ASSERT_TRUE(state.ok()) << length;
    EXPECT_EQ(state->finished(), length >= one ? 1U : 0U) << length;
    ASSERT_TRUE(state->append(5, 5, cost(1, 2.0)).ok());
    auto again = AuditState::open(folder.file(), "k1");
    ASSERT_TRUE(again.ok());
    expect_equal(again->find(5, 5), cost(1, 2.0));
  }
  std::string flipped = whole;
  flipped[flipped.size() - 5] ^= 1;
  std::ofstream(folder.file(), std::ios::binary | std::ios::trunc) << flipped;
  EXPECT_EQ(AuditState::open(folder.file(), "k1")->finished(), 1U);
}

TEST(AuditState, AnotherAuditsFileIsRefusedAndLeftAlone) {
  const Folder folder;
  {
    auto state = AuditState::open(folder.file(), "k1");
    ASSERT_TRUE(state->append(0, 0, cost(2, 0.5)).ok());
  }
  const auto other = AuditState::open(folder.file(), "k2");
  ASSERT_FALSE(other.ok());
  EXPECT_EQ(other.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(AuditState::open(folder.file(), "k1")->finished(), 1U);
}

}  // namespace
}  // namespace sterling::lab
