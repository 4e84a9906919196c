#include "formats/object_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/json.h"

namespace sterling::formats {
namespace {

using ::testing::ElementsAre;

boost::json::object parse(std::string_view text) {
  auto parsed = parse_json_object(text, "config.json");
  EXPECT_TRUE(parsed.ok()) << parsed.error().message;
  return parsed.ok() ? std::move(*parsed) : boost::json::object();
}

template <typename Read>
std::string message_of(std::string_view text, Read read) {
  const boost::json::object object = parse(text);
  const ObjectReader reader(object, "config.json");
  read(reader);
  const Status status = reader.status();
  return status.ok() ? "ok" : status.error().message;
}

TEST(ObjectReader, ReadsTypedFields) {
  const boost::json::object object = parse(R"({
    "hidden_size": 64, "eps": 1e-6, "theta": 10000, "tied": true, "type": "llama", "none": null,
    "names": ["a", "b"], "ids": [1, 2], "scales": [1, 0.5], "eos": 7, "child": {"factor": 8.0, "odd": 1}, "rest": 0})");
  const ObjectReader reader(object, "config.json");
  EXPECT_EQ(reader.integer("hidden_size", 1, 4096), 64);
  EXPECT_EQ(reader.number("eps", 0, 1), 1e-6);
  EXPECT_EQ(reader.number("theta", 1, 1e9), 10000.0);
  EXPECT_TRUE(reader.boolean("tied"));
  EXPECT_EQ(reader.string("type"), "llama");
  EXPECT_EQ(reader.one_of("type", {"qwen3", "llama"}), "llama");
  EXPECT_EQ(reader.integer_or("none", 5, 0, 9), 5);
  EXPECT_EQ(reader.optional_integer("absent", 0, 9), std::nullopt);
  EXPECT_FALSE(reader.has("none"));
  EXPECT_TRUE(reader.has("rest"));
  EXPECT_THAT(reader.strings("names"), ElementsAre("a", "b"));
  EXPECT_THAT(reader.integers("ids", 0, 9), ElementsAre(1, 2));
  EXPECT_THAT(reader.numbers("scales", 0, 9), ElementsAre(1.0, 0.5));
  EXPECT_THAT(reader.integer_or_list("eos", 0, 9), ElementsAre(7));
  EXPECT_THAT(reader.integer_or_list("ids", 0, 9), ElementsAre(1, 2));
  const auto child = reader.optional_object("child");
  ASSERT_TRUE(child.has_value());
  EXPECT_EQ(child->number("factor", 1, 100), 8.0);
  EXPECT_TRUE(reader.status().ok());
  EXPECT_THAT(reader.unread(), ElementsAre("rest", "child.odd"));
  child->ignore({"odd"});
  reader.ignore({"rest", "never_there"});
  EXPECT_THAT(reader.unread(), ElementsAre());
}

TEST(ObjectReader, SaysWhatIsWrong) {
  EXPECT_EQ(message_of("{}", [](const ObjectReader& r) { r.integer("hidden_size", 1, 9); }),
            "config.json: hidden_size is missing");
  EXPECT_EQ(message_of(R"({"hidden_size": null})", [](const ObjectReader& r) { r.integer("hidden_size", 1, 9); }),
            "config.json: hidden_size is null");
  EXPECT_EQ(message_of(R"({"num_hidden_layers": "two"})",
                       [](const ObjectReader& r) { r.integer("num_hidden_layers", 1, 4096); }),
            "config.json: num_hidden_layers: expected an integer from 1 to 4096, found the string \"two\"");
  EXPECT_EQ(message_of(R"({"n": 1099511627776})", [](const ObjectReader& r) { r.integer("n", 1, 4096); }),
            "config.json: n: expected an integer from 1 to 4096, found the number 1099511627776");
  EXPECT_EQ(
      message_of(R"({"n": 18446744073709551615})", [](const ObjectReader& r) { r.integer_or("n", 1, 0, INT64_MAX); }),
      "config.json: n: expected an integer of at least 0, found the number 18446744073709551615");
  EXPECT_EQ(message_of(R"({"n": 2.5})", [](const ObjectReader& r) { r.integer("n", 1, 4096); }),
            "config.json: n: expected an integer from 1 to 4096, found the number 2.5");
  EXPECT_EQ(message_of(R"({"x": true})", [](const ObjectReader& r) { r.number_or("x", 1, 0, 10); }),
            "config.json: x: expected a number from 0 to 10, found true");
  EXPECT_EQ(message_of(R"({"x": 0})", [](const ObjectReader& r) { r.boolean_or("x", true); }),
            "config.json: x: expected true or false, found the number 0");
  EXPECT_EQ(message_of(R"({"x": ["a", 3]})", [](const ObjectReader& r) { r.strings("x"); }),
            "config.json: x[1]: expected a string, found the number 3");
  EXPECT_EQ(message_of(R"({"x": "spiral"})",
                       [](const ObjectReader& r) {
                         r.one_of("x", {"default", "llama3"});
                       }),
            "config.json: x: expected one of \"default\", \"llama3\", found the string \"spiral\"");
  EXPECT_EQ(message_of(R"({"x": []})", [](const ObjectReader& r) { r.object("x").integer("y", 0, 1); }),
            "config.json: x: expected an object, found an array");
  EXPECT_EQ(message_of(R"({"x": {}})", [](const ObjectReader& r) { r.object("x").integer("y", 0, 1); }),
            "config.json: x.y is missing");
}

TEST(ObjectReader, KeepsTheFirstErrorAndReturnsValuesInRange) {
  const boost::json::object object = parse(R"({"b": "x"})");
  const ObjectReader reader(object, "dir/config.json", "text_config");
  EXPECT_EQ(reader.integer("a", 3, 9), 3);
  EXPECT_EQ(reader.integer("b", 4, 9), 4);
  EXPECT_EQ(reader.number("c", 0.5, 9), 0.5);
  EXPECT_EQ(reader.object("d").integer("e", 2, 9), 2);
  reader.fail("b", "too late");
  ASSERT_FALSE(reader.status().ok());
  EXPECT_EQ(reader.status().error().message, "dir/config.json: text_config.a is missing");
  EXPECT_EQ(reader.status().error().where, "dir/config.json:text_config.a");
  EXPECT_EQ(reader.status().error().code, ErrorCode::kCorrupt);
}

}  // namespace
}  // namespace sterling::formats
