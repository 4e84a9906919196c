#include "protocol/json_writer.h"

#include <bit>
#include <cmath>
#include <cstdlib>
#include <random>

#include <boost/json.hpp>
#include <gtest/gtest.h>

namespace sterling::protocol {
namespace {

TEST(JsonWriter, PutsCommasAndEscapesWhereTheyBelong) {
  std::string out;
  JsonWriter json(out);
  json.begin_object().field("a", 1).key("b").begin_array().string("x").null().begin_object().end_object().end_array();
  json.key("c\n").boolean(true).field("d", "\"\\\t\x01é").end_object();
  EXPECT_EQ(out, "{\"a\":1,\"b\":[\"x\",null,{}],\"c\\n\":true,\"d\":\"\\\"\\\\\\t\\u0001é\"}");
}

TEST(JsonWriter, StringsComeBackAsTheyWere) {
  std::string all;
  for (int c = 0; c < 128; ++c) all += static_cast<char>(c);
  all += "é漢👋";
  std::string out;
  JsonWriter(out).string(all);
  EXPECT_EQ(std::string_view(boost::json::parse(out).as_string()), all);
}

TEST(JsonWriter, FloatsKeepTheirBitsAlsoByWayOfADouble) {
  std::mt19937 random(3);
  for (int i = 0; i < 200'000; ++i) {
    const float value = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    if (!std::isfinite(value)) continue;
    std::string out;
    JsonWriter(out).float_exact(value);
    EXPECT_EQ(std::bit_cast<std::uint32_t>(std::strtof(out.c_str(), nullptr)), std::bit_cast<std::uint32_t>(value))
        << out;
    // Readers of JSON take a double and may narrow it.
    const auto narrowed = static_cast<float>(std::strtod(out.c_str(), nullptr));
    EXPECT_EQ(std::bit_cast<std::uint32_t>(narrowed), std::bit_cast<std::uint32_t>(value)) << out;
  }
}

}  // namespace
}  // namespace sterling::protocol
