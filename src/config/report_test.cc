#include "config/report.h"

#include <fstream>
#include <sstream>

#include <boost/json.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/serve_settings.h"

namespace sterling::config {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Settings settings(const std::vector<std::string>& args) {
  Sources sources;
  sources.args = args;
  auto resolved = resolve(serve_schema(), sources);
  EXPECT_TRUE(resolved.ok());
  return std::move(resolved).value();
}

TEST(Report, HelpListsEverySetting) {
  const std::string help = help_text(serve_schema(), 80);
  for (const Setting& setting : serve_schema().settings) EXPECT_THAT(help, HasSubstr(flag_name(setting)));
  EXPECT_THAT(help, HasSubstr("-c, --max-model-len, --context-length, --ctx-size N\n"));
  EXPECT_THAT(help, HasSubstr("default: 8000; an integer from 0 to 65535]"));
  std::istringstream lines(help);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("      ")) {
      EXPECT_LE(line.size(), 80u) << line;
    }
  }
}

TEST(Report, ArgsLineIsOneLineWithEffectiveValuesAndNoSecrets) {
  const std::string line =
      args_line(settings({"/m/it's\nodd", "--api-key", "hunter2", "--strict", "--kv-cache-dtype", "auto"}));
  EXPECT_TRUE(line.starts_with("server_args=ServerArgs(model='/m/it\\'s\\x0aodd', ")) << line;
  EXPECT_THAT(line, HasSubstr("port=8000, "));
  EXPECT_THAT(line, HasSubstr("strict=True"));
  EXPECT_THAT(line, HasSubstr("kv_cache_dtype='bf16'"));
  EXPECT_THAT(line, HasSubstr("kv_cache_memory='auto'"));
  EXPECT_THAT(line, HasSubstr("chat_template=None"));
  EXPECT_THAT(line, HasSubstr("header_timeout=30"));
  EXPECT_THAT(line, HasSubstr("api_key='***'"));
  EXPECT_THAT(line, Not(HasSubstr("hunter2")));
  EXPECT_EQ(line.find('\n'), std::string::npos);
}

TEST(Report, JsonHasValueOriginAndSource) {
  const std::string text = settings_json(settings({"m", "-c", "4096", "--api-key", "hunter2"}));
  EXPECT_THAT(text, Not(HasSubstr("hunter2")));
  const boost::json::object all = boost::json::parse(text).as_object();
  EXPECT_EQ(all.size(), serve_schema().settings.size());
  const auto& length = all.at("max_model_len").as_object();
  EXPECT_EQ(length.at("value").as_int64(), 4096);
  EXPECT_EQ(length.at("origin").as_string(), "flag");
  EXPECT_EQ(length.at("source").as_string(), "-c");
  EXPECT_EQ(length.at("effect").as_string(), "capacity");
  EXPECT_EQ(all.at("api_key").as_object().at("value").as_string(), "***");
  EXPECT_TRUE(all.at("chat_template").as_object().at("value").is_null());
  EXPECT_EQ(all.at("threads").as_object().at("origin").as_string(), "default");
  EXPECT_EQ(all.at("isa").as_object().at("value").as_string(), "auto");
}

TEST(Report, SettingsPageIsFresh) {
  const std::string page = std::string(STERLING_SOURCE_DIR) + "/docs/settings.md";
  std::ifstream file(page);
  std::ostringstream committed;
  committed << file.rdbuf();
  const std::string fresh = settings_markdown(serve_schema());
  if (committed.str() != fresh) std::ofstream("settings.md") << fresh;
  EXPECT_TRUE(committed.str() == fresh) << page
                                        << " is older than the table; the new text lies in the folder the test ran "
                                        << "in: cp build/*/src/config/settings.md docs/settings.md";
}

}  // namespace
}  // namespace sterling::config
