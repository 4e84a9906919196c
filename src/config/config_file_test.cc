#include "config/config_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sterling::config {
namespace {

using ::testing::HasSubstr;

TEST(ConfigFile, Lines) {
  const auto entries = parse_config_file(
      "# comment\n\nport = 9000\r\n  host=0.0.0.0\nserved_model_name = \"my # model\"\napi-key = 'a=b'\nempty =\n",
      "s.conf");
  ASSERT_TRUE(entries.ok()) << entries.error().message;
  ASSERT_EQ(entries->size(), 5u);
  EXPECT_EQ((*entries)[0].key, "port");
  EXPECT_EQ((*entries)[0].value, "9000");
  EXPECT_EQ((*entries)[0].where, "s.conf:3");
  EXPECT_EQ((*entries)[1].value, "0.0.0.0");
  EXPECT_EQ((*entries)[2].value, "my # model");
  EXPECT_EQ((*entries)[3].value, "a=b");
  EXPECT_EQ((*entries)[4].value, "");
}

TEST(ConfigFile, Json) {
  const auto entries = parse_config_file(
      R"(  {"port": 9000, "strict": true, "header_timeout": 2.5, "host": "::1", "api_key": null})", "s.json");
  ASSERT_TRUE(entries.ok()) << entries.error().message;
  ASSERT_EQ(entries->size(), 4u);
  EXPECT_EQ((*entries)[0].value, "9000");
  EXPECT_EQ((*entries)[0].where, "s.json:port");
  EXPECT_EQ((*entries)[1].value, "true");
  EXPECT_EQ((*entries)[3].value, "::1");
}

TEST(ConfigFile, NothingSetsNothing) {
  for (const char* text : {"", "\n\n", "# only a comment", "{}"}) {
    const auto entries = parse_config_file(text, "f");
    ASSERT_TRUE(entries.ok());
    EXPECT_TRUE(entries->empty());
  }
}

TEST(ConfigFile, BrokenFilesNameThePlace) {
  const auto message = [](const std::string& text) {
    const auto entries = parse_config_file(text, "f");
    EXPECT_FALSE(entries.ok()) << text;
    return entries.ok() ? std::string() : entries.error().message;
  };
  EXPECT_THAT(message("port = 1\nnonsense\n"), HasSubstr("f:2: 'nonsense'"));
  EXPECT_THAT(message("= 3\n"), HasSubstr("f:1"));
  EXPECT_THAT(message("port = 1\nport = 2\n"), HasSubstr("f:2: 'port' is set already at f:1"));
  EXPECT_THAT(message("host = \"x\n"), HasSubstr("f:1: a quote"));
  EXPECT_THAT(message("{\"port\": "), HasSubstr("f: is no JSON"));
  EXPECT_THAT(message("{\"port\": [1]}"), HasSubstr("f:port: is a JSON array"));
  EXPECT_THAT(message("{\"a\": {\"b\": 1}}"), HasSubstr("f:a: is a JSON object"));
  EXPECT_THAT(message("{} trailing"), HasSubstr("f: is no JSON"));
  EXPECT_THAT(message(std::string("port = 1\0", 9)), HasSubstr("NUL"));
  std::string deep = "{\"a\":";
  for (int i = 0; i < 100000; ++i) deep += '[';
  EXPECT_THAT(message(deep), HasSubstr("f: is no JSON"));
}

}  // namespace
}  // namespace sterling::config
