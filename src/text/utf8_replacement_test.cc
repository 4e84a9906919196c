// Against Python's bytes.decode('utf-8', errors='replace').
#include <gtest/gtest.h>

#include "base/utf8.h"
#include "text/test_fixtures.h"

namespace sterling::text {
namespace {

std::string from_hex(const std::string& hex) {
  std::string out;
  for (std::size_t i = 0; i < hex.size(); i += 2) out += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return out;
}

TEST(Utf8, ReplacesWhatPythonReplaces) {
  std::size_t replaced = 0;
  const boost::json::value cases = testing::read_json("utf8.json");
  for (const auto& entry : cases.as_array()) {
    const std::string bytes = from_hex(testing::to_string(entry.at(0)));
    std::string text;
    std::string_view rest = bytes;
    while (!rest.empty()) {
      const Utf8Step step = utf8_step(rest);
      ASSERT_GT(step.size, 0u);
      if (step.kind == Utf8Step::kIncomplete) {
        ASSERT_EQ(step.size, rest.size());
      }
      if (step.kind != Utf8Step::kCharacter) ++replaced;
      text += step.kind == Utf8Step::kCharacter ? rest.substr(0, step.size) : kReplacement;
      rest.remove_prefix(step.size);
    }
    EXPECT_EQ(text, testing::to_string(entry.at(1))) << testing::to_string(entry.at(0));
    EXPECT_EQ(utf8_valid_prefix(bytes) == bytes.size(), text == bytes);
  }
  EXPECT_GT(replaced, 500u);
}

}  // namespace
}  // namespace sterling::text
