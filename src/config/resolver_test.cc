#include "config/resolver.h"

#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/serve_settings.h"

namespace sterling::config {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct Input {
  std::vector<std::string> args = {};
  std::vector<std::pair<std::string, std::string>> environment = {};
  std::vector<FileEntry> file = {};
};

Expected<Settings> run(const Input& input) {
  return resolve(serve_schema(), Sources{input.args, input.environment, input.file});
}

Settings good(const Input& input) {
  auto settings = run(input);
  EXPECT_TRUE(settings.ok()) << (settings.ok() ? "" : settings.error().message);
  return settings.ok() ? std::move(settings).value() : Settings{};
}

Error bad(const Input& input) {
  const auto settings = run(input);
  EXPECT_FALSE(settings.ok());
  return settings.ok() ? Error{} : settings.error();
}

TEST(Resolver, DefaultsHaveTheirOrigin) {
  const Settings s = good({});
  EXPECT_EQ(s.text("host"), "127.0.0.1");
  EXPECT_EQ(s.integer("port"), 8000);
  EXPECT_EQ(s.integer("max_body_size"), 32 << 20);
  EXPECT_EQ(s.seconds("drain_timeout"), 30.0);
  EXPECT_FALSE(s.boolean("strict"));
  EXPECT_FALSE(s.optional_integer("kv_cache_memory").has_value());
  for (const ResolvedValue& value : s.values()) {
    EXPECT_EQ(value.origin, Origin::kDefault) << value.setting->key;
    EXPECT_EQ(value.source, "");
  }
}

TEST(Resolver, FlagBeatsEnvironmentBeatsFileBeatsDefault) {
  Input input;
  input.file = {{"port", "1", "f:1"}, {"max_queue", "11", "f:2"}, {"threads", "21", "f:3"}};
  input.environment = {{"STERLING_PORT", "2"}, {"STERLING_MAX_QUEUE", "12"}, {"PATH", "/bin"}};
  input.args = {"--port", "3"};
  const Settings s = good(input);
  EXPECT_EQ(s.integer("port"), 3);
  EXPECT_EQ(s.at("port").origin, Origin::kFlag);
  EXPECT_EQ(s.at("port").source, "--port");
  EXPECT_EQ(s.integer("max_queue"), 12);
  EXPECT_EQ(s.at("max_queue").source, "STERLING_MAX_QUEUE");
  EXPECT_EQ(s.integer("threads"), 21);
  EXPECT_EQ(s.at("threads").source, "f:3");
  EXPECT_EQ(s.at("host").origin, Origin::kDefault);
}

TEST(Resolver, EverySpellingOfEveryTable) {
  for (const Setting& setting : serve_schema().settings) {
    if (setting.type == SettingType::kBoolean) continue;
    std::string value = "7777";
    if (setting.type == SettingType::kChoice) value = setting.choices[0].value;
    if (setting.type == SettingType::kBytes) value = "2MiB";
    std::vector<std::string> spellings = {flag_name(setting)};
    for (const Alias& alias : setting.aliases) {
      if (!alias.spelling.empty()) spellings.emplace_back(alias.spelling);
    }
    if (setting.max < 7777) value = "5";
    for (const std::string& spelling : spellings) {
      const Settings s = good({.args = {spelling, value}});
      EXPECT_EQ(s.at(setting.key).origin, Origin::kFlag) << spelling;
      EXPECT_EQ(s.at(setting.key).source, spelling);
    }
    EXPECT_EQ(good({.environment = {{environment_name(setting), value}}}).at(setting.key).origin, Origin::kEnvironment);
    EXPECT_EQ(good({.file = {{std::string(setting.key), value, "f:1"}}}).at(setting.key).origin, Origin::kFile);
  }
}

TEST(Resolver, SpellingsAreUnique) {
  std::set<std::string> seen;
  for (const Setting& setting : serve_schema().settings) {
    EXPECT_TRUE(seen.insert(flag_name(setting)).second) << setting.key;
    EXPECT_FALSE(setting.help.empty()) << setting.key;
    EXPECT_TRUE(setting.type == SettingType::kBoolean || !setting.placeholder.empty()) << setting.key;
    for (const Alias& alias : setting.aliases) {
      if (!alias.spelling.empty()) {
        EXPECT_TRUE(seen.insert(std::string(alias.spelling)).second) << alias.spelling;
      }
    }
  }
  for (const ForeignFlag& foreign : serve_schema().foreign) {
    EXPECT_TRUE(seen.insert(std::string(foreign.flag)).second) << foreign.flag;
  }
}

TEST(Resolver, WaysToWriteAFlag) {
  EXPECT_EQ(good({.args = {"--port=81"}}).integer("port"), 81);
  EXPECT_EQ(good({.args = {"--kv_cache_memory", "1GiB"}}).integer("kv_cache_memory"), 1 << 30);
  EXPECT_EQ(good({.args = {"-c", "4096"}}).integer("max_model_len"), 4096);
  EXPECT_TRUE(good({.args = {"--strict"}}).boolean("strict"));
  EXPECT_FALSE(good({.args = {"--no-strict"}, .environment = {{"STERLING_STRICT", "1"}}}).boolean("strict"));
  EXPECT_FALSE(good({.args = {"--strict=false"}}).boolean("strict"));
  EXPECT_EQ(good({.args = {"--served-model-name=--odd"}}).text("served_model_name"), "--odd");
  EXPECT_EQ(good({.args = {"--isa", "AVX2"}}).text("isa"), "avx2");
}

TEST(Resolver, PositionalModel) {
  EXPECT_EQ(good({.args = {"/models/a", "--port", "1"}}).text("model"), "/models/a");
  EXPECT_EQ(good({.args = {"--port", "1", "--", "-odd-name"}}).text("model"), "-odd-name");
  EXPECT_EQ(good({.args = {"-m", "/models/a", "/models/a"}}).text("model"), "/models/a");
  EXPECT_THAT(bad({.args = {"a", "b"}}).message, HasSubstr("b: unexpected argument; MODEL is 'a' already"));
  EXPECT_EQ(good({.environment = {{"STERLING_MODEL", "x"}}, .file = {{"model", "y", "f:1"}}}).text("model"), "x");
}

TEST(Resolver, AWordMeansNoValue) {
  const Settings s = good({.args = {"--max-model-len", "auto", "--request-timeout", "None"},
                           .environment = {{"STERLING_MAX_MODEL_LEN", "100"}, {"STERLING_REQUEST_TIMEOUT", "5"}}});
  EXPECT_FALSE(s.optional_integer("max_model_len").has_value());
  EXPECT_EQ(s.at("max_model_len").origin, Origin::kFlag);
  EXPECT_FALSE(s.optional_seconds("request_timeout").has_value());
}

TEST(Resolver, AutoKvCacheDtypeIsNeverShown) {
  EXPECT_EQ(good({.args = {"--kv-cache-dtype", "auto"}}).text("kv_cache_dtype"), "bf16");
  EXPECT_EQ(good({.args = {"--kv-cache-dtype", "fp8"}}).text("kv_cache_dtype"), "fp8_e4m3");
  EXPECT_EQ(good({.args = {"--cache-type-k", "f32"}}).text("kv_cache_dtype_k"), "fp32");
  EXPECT_EQ(good({}).text("kv_cache_dtype_v"), "");
  EXPECT_THAT(bad({.args = {"--kv-cache-dtype", "bf61"}}).message, HasSubstr("did you mean bf16?"));
}

TEST(Resolver, UnknownFlagsNameTheNearest) {
  const Error error = bad({.args = {"--prot", "80"}});
  EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(error.where, "--prot");
  EXPECT_THAT(error.message, HasSubstr("--prot: no such flag; did you mean --port?"));
  EXPECT_THAT(bad({.args = {"--ctx-szie=5"}}).message, HasSubstr("did you mean --ctx-size?"));
  EXPECT_THAT(bad({.args = {"--zzzzzzzzzzzzzz"}}).message, Not(HasSubstr("did you mean")));
  EXPECT_THAT(bad({.args = {"-Q"}}).message, HasSubstr("-Q: no such flag"));
  EXPECT_THAT(bad({.args = {"--gpu_memory_utilization", "0.9"}}).message,
              HasSubstr("is a flag of vLLM; say what the KV pool gets: --kv-cache-memory SIZE"));
  EXPECT_THAT(bad({.file = {{"prot", "1", "s.conf:7"}}}).message,
              HasSubstr("s.conf:7: no setting is called 'prot'; did you mean port?"));
}

TEST(Resolver, UnknownVariablesAreWarnings) {
  const Settings s = good({.environment = {{"STERLING_PROT", "1"}, {"STERLING_PORT", ""}, {"PORT", "3"}}});
  ASSERT_EQ(s.warnings().size(), 1u);
  EXPECT_EQ(s.warnings()[0], "STERLING_PROT: no such setting; nearest: STERLING_PORT");
  EXPECT_EQ(s.at("port").origin, Origin::kDefault);  // empty means not set
}

TEST(Resolver, WrongValuesNameTheFlagTheFoundAndTheAccepted) {
  const struct {
    std::vector<std::string> args;
    const char* expected;
  } cases[] = {
      {{"--port", "70000"}, "--port: '70000' is not accepted; accepted: an integer from 0 to 65535"},
      {{"--port", "-1"}, "--port: '-1' is not accepted"},
      {{"--port", "80x"}, "--port: '80x' is not accepted"},
      {{"--port", "99999999999999999999"}, "is not accepted"},
      {{"--port", ""}, "--port: '' is not accepted"},
      {{"--port"}, "--port: needs a value, found nothing"},
      {{"--port", "--strict"}, "--port: needs a value, found the flag --strict"},
      {{"--max-num-seqs", "0"}, "accepted: an integer from 1 to 4096"},
      {{"--kv-cache-memory", "8G"}, "write 8GiB for powers of 1024, 8GB for powers of 1000"},
      {{"--kv-cache-memory", "1KiB"}, "at least 1 MiB, or auto"},
      {{"--header-timeout", "0"}, "from 1 to 86400"},
      {{"--isa", "avx152"}, "accepted: scalar, avx2, avx512, avx512bf16, or auto; did you mean avx512?"},
      {{"--strict=maybe"}, "--strict: 'maybe' is not accepted; accepted: true or false"},
      {{"--no-strict=true"}, "--no-strict: takes no value"},
      {{"--host="}, "--host: '' is not accepted"},
  };
  for (const auto& each : cases) {
    const Error error = bad({.args = each.args});
    EXPECT_THAT(error.message, HasSubstr(each.expected));
  }
  EXPECT_THAT(bad({.environment = {{"STERLING_PORT", "http"}}}).message, HasSubstr("STERLING_PORT: 'http'"));
  // A broken source is told even where a stronger one hides it.
  EXPECT_THAT(bad({.args = {"--port", "1"}, .file = {{"port", "x", "s.conf:2"}}}).message, HasSubstr("s.conf:2: 'x'"));
}

TEST(Resolver, OneSettingTwice) {
  EXPECT_EQ(good({.args = {"--port", "1", "--port=1"}}).integer("port"), 1);
  EXPECT_THAT(bad({.args = {"-c", "10", "--max-model-len", "20"}}).message,
              HasSubstr("max_model_len is given twice: '10' by -c, then '20' by --max-model-len"));
}

TEST(Resolver, RepeatableTexts) {
  static constexpr std::array kRows{Setting{.key = "include", .repeatable = true}, Setting{.key = "name"}};
  const Schema schema{.command = "pull", .settings = kRows};
  const std::vector<std::string> args{"--include", "*.json", "--include=a b", "--include", "*.json"};
  const auto settings = resolve(schema, {args, {}, {}});
  ASSERT_TRUE(settings.ok());
  EXPECT_EQ(settings->list("include"), (std::vector<std::string>{"*.json", "a b", "*.json"}));
  // A stronger source replaces what a weaker one said.
  const std::vector<std::pair<std::string, std::string>> environment{{"STERLING_INCLUDE", "x"}};
  EXPECT_EQ(resolve(schema, {args, environment, {}})->list("include").size(), 3u);
  EXPECT_EQ(resolve(schema, {{}, environment, {}})->list("include"), std::vector<std::string>{"x"});
  EXPECT_TRUE(resolve(schema, {{}, {}, {}})->list("include").empty());
  const std::vector<std::string> twice{"--name", "a", "--name", "b"};
  EXPECT_FALSE(resolve(schema, {twice, {}, {}}).ok());
}

TEST(Resolver, SecretsStayOutOfMessages) {
  const Error error = bad({.args = {"--api-key", "hunter2", "--api-key", "hunter3"}});
  EXPECT_THAT(error.message, Not(HasSubstr("hunter")));
}

TEST(Resolver, HostileArguments) {
  EXPECT_FALSE(run({.args = {std::string(1 << 20, '-')}}).ok());
  EXPECT_FALSE(run({.args = {"--" + std::string(1 << 20, 'a')}}).ok());
  EXPECT_LT(bad({.args = {"--port", std::string(1 << 20, '9')}}).message.size(), 400u);
  EXPECT_FALSE(run({.args = {"--host", std::string("a\0b", 3)}}).ok());
  EXPECT_TRUE(run({.args = {"-"}}).ok());  // a positional, as everywhere
}

TEST(EarlyValue, FindsTheConfigurationFile) {
  const std::vector<std::pair<std::string, std::string>> environment = {{"STERLING_CONFIG", "env.conf"}};
  const auto early = [&](std::vector<std::string> args, bool with_environment) {
    Sources sources;
    sources.args = args;
    if (with_environment) sources.environment = environment;
    return early_value(serve_schema(), sources, "config");
  };
  EXPECT_EQ(early({"m", "--port", "1", "--config", "a.conf"}, true), "a.conf");
  EXPECT_EQ(early({"--config=a.conf"}, true), "a.conf");
  EXPECT_EQ(early({"--served-model-name", "--config", "x"}, true), "env.conf");  // there it is a value
  EXPECT_EQ(early({"m"}, true), "env.conf");
  EXPECT_EQ(early({"m"}, false), std::nullopt);
  EXPECT_EQ(early({"--", "--config", "x"}, false), std::nullopt);
}

TEST(AsksForHelp, BeforeADoubleDash) {
  EXPECT_TRUE(asks_for_help(std::vector<std::string>{"m", "--help"}));
  EXPECT_TRUE(asks_for_help(std::vector<std::string>{"-h"}));
  EXPECT_FALSE(asks_for_help(std::vector<std::string>{"--", "-h"}));
  EXPECT_FALSE(asks_for_help(std::vector<std::string>{}));
}

TEST(ServeOptions, TypedAndChecked) {
  const auto options = serve_options(good({.args = {"m", "--port", "0", "--threads", "0", "--isa", "auto", "--compute",
                                                    "fp32", "--kv-cache-memory", "1GiB", "--seed", "5"}}));
  ASSERT_TRUE(options.ok()) << options.error().message;
  EXPECT_EQ(options->model, "m");
  EXPECT_EQ(options->port, 0);
  EXPECT_FALSE(options->threads.has_value());
  EXPECT_FALSE(options->isa.has_value());
  EXPECT_EQ(options->compute.value, "fp32");
  EXPECT_EQ(options->kv_cache_memory, std::size_t{1} << 30);
  EXPECT_EQ(options->seed, 5);
  EXPECT_EQ(options->max_num_seqs, 32u);
  EXPECT_FALSE(options->request_timeout.has_value());

  const auto no_model = serve_options(good({}));
  ASSERT_FALSE(no_model.ok());
  EXPECT_THAT(no_model.error().message, HasSubstr("MODEL"));

  const auto two_keys = serve_options(good({.args = {"m", "--api-key", "hunter2", "--api-key-file", "f"}}));
  ASSERT_FALSE(two_keys.ok());
  EXPECT_THAT(two_keys.error().message, HasSubstr("--api-key-file"));
  EXPECT_THAT(two_keys.error().message, Not(HasSubstr("hunter2")));
}

}  // namespace
}  // namespace sterling::config
