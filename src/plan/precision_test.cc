// The resolver over every (checkpoint kind × wish × machine). Its answers are the two tables of docs/numerics.md, which are generated here and
// reviewed there; what must hold of every answer, whatever the tables say, is asserted one by one.
#include "plan/precision.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <functional>
#include <sstream>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sterling::plan {
namespace {

using ::testing::HasSubstr;

constexpr std::int32_t kKvHeads = 2;

// Layers 1 and 3 of four are full attention.
const ModelSpec& hybrid() {
  static const ModelSpec spec = [] {
    ModelSpec s;
    s.architecture = "Qwen3_5ForCausalLM";
    s.layers = {LayerKind::kLinearAttention, LayerKind::kFullAttention, LayerKind::kLinearAttention,
                LayerKind::kFullAttention};
    s.attention.heads = 4;
    s.attention.kv_heads = kKvHeads;
    s.attention.head_dim = 64;
    s.gdn = GdnSpec{2, 4, 16, 16, 4};
    return s;
  }();
  return spec;
}

BackendCapabilities whole_machine() {
  return {.name = "cpu",
          .computes = {"bf16", "fp32"},
          .kv_types = {kKvTypes.begin(), kKvTypes.end()},
          .packed_formats = {"bf16", "nvfp4"}};
}

BackendCapabilities plain_machine() {
  return {
      .name = "plain", .computes = {"bf16"}, .kv_types = {KvType::kBf16, KvType::kFp32}, .packed_formats = {"bf16"}};
}

void announce(PrecisionInput& input, std::optional<std::string> in_config, std::optional<std::string> in_hf_quant) {
  const auto place = [](std::string where, const std::optional<std::string>& wish) {
    return MetadataWish::Place{std::move(where), wish, wish ? "\"" + *wish + "\"" : "null"};
  };
  input.metadata.places = {place("config.json quantization_config.kv_cache_scheme", in_config),
                           place("hf_quant_config.json quantization.kv_cache_quant_algo", in_hf_quant)};
  input.metadata.disagree = in_config != in_hf_quant;
  input.metadata.wish = in_config ? in_config : in_hf_quant;
}

void hold(PrecisionInput& input, std::string source, std::vector<float> first, std::vector<float> second) {
  input.scales.source = std::move(source);
  input.scales.looked_for = "k_scale and v_scale";
  input.scales.expected = 4;
  input.scales.missing.clear();
  input.scales.scales = {{first, second}, {first, second}};
  for (const auto& [layer, values] : {std::pair{1, first}, std::pair{3, second}}) {
    if (!values.empty()) continue;
    input.scales.missing.push_back(fmt::format("layer {} K", layer));
    input.scales.missing.push_back(fmt::format("layer {} V", layer));
  }
}

struct Kind {
  std::string name;
  std::function<void(PrecisionInput&)> make;
};

// Every kind starts as one without metadata and without scales.
const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all = {
      {"no wish, no scales", [](PrecisionInput&) {}},
      {"no wish, scales", [](PrecisionInput& i) { hold(i, "checkpoint", {0.5F}, {0.25F}); }},
      {"FP8 wish, scales per tensor",
       [](PrecisionInput& i) {
         announce(i, "fp8_e4m3", "fp8_e4m3");
         hold(i, "checkpoint", {0.5F}, {0.25F});
       }},
      {"FP8 wish, scales per head",
       [](PrecisionInput& i) {
         announce(i, "fp8_e4m3", "fp8_e4m3");
         hold(i, "checkpoint", {0.5F, 0.75F}, {0.25F, 0.5F});
       }},
      {"FP8 wish, no scales", [](PrecisionInput& i) { announce(i, "fp8_e4m3", "fp8_e4m3"); }},
      {"FP8 wish of ModelOpt, no scales (cast recipe)",
       [](PrecisionInput& i) {
         announce(i, "fp8_e4m3", "fp8_e4m3");
         i.metadata.modelopt = true;
       }},
      {"FP8 wish, scales all 1",
       [](PrecisionInput& i) {
         announce(i, "fp8_e4m3", "fp8_e4m3");
         hold(i, "checkpoint", {1.0F}, {1.0F});
       }},
      {"FP8 wish, scales in half the layers",
       [](PrecisionInput& i) {
         announce(i, "fp8_e4m3", "fp8_e4m3");
         hold(i, "checkpoint", {0.5F}, {});
       }},
      {"FP8 wish, no scales, --kv-scales FILE",
       [](PrecisionInput& i) {
         announce(i, "fp8_e4m3", "fp8_e4m3");
         hold(i, "file kv.json", {0.5F}, {0.25F});
       }},
      {"files disagree (FP8, silent), scales",
       [](PrecisionInput& i) {
         announce(i, std::nullopt, "fp8_e4m3");
         hold(i, "checkpoint", {0.5F}, {0.25F});
       }},
      {"NVFP4 wish", [](PrecisionInput& i) { announce(i, "nvfp4", "nvfp4"); }},
  };
  return all;
}

struct Flag {
  std::string name;
  std::function<void(PrecisionWishes&)> set;
};

Flag kv_flag(const std::string& value) {
  return {value, [value](PrecisionWishes& w) { w.kv = {value, "flag --kv-cache-dtype"}; }};
}

const std::vector<Flag>& flags() {
  static const std::vector<Flag> all = {
      {"none", [](PrecisionWishes&) {}},
      kv_flag("auto"),
      kv_flag("bf16"),
      kv_flag("fp32"),
      kv_flag("fp8_e4m3"),
      kv_flag("fp8_e5m2"),
      kv_flag("fp8_e4m3_token"),
      kv_flag("checkpoint"),
      {"K fp8_e4m3",
       [](PrecisionWishes& w) {
         w.kv_k = {"fp8_e4m3", "flag --kv-cache-dtype-k"};
       }},
      {"V fp8_e4m3_token",
       [](PrecisionWishes& w) {
         w.kv_v = {"fp8_e4m3_token", "flag --kv-cache-dtype-v"};
       }},
      {"fp8_e4m3, accept",
       [](PrecisionWishes& w) {
         w.kv = {"fp8_e4m3", "flag --kv-cache-dtype"};
         w.accept_unscaled_kv = true;
       }},
      {"checkpoint, accept",
       [](PrecisionWishes& w) {
         w.kv = {"checkpoint", "flag --kv-cache-dtype"};
         w.accept_unscaled_kv = true;
       }},
      {"checkpoint, strict",
       [](PrecisionWishes& w) {
         w.kv = {"checkpoint", "flag --kv-cache-dtype"};
         w.strict = true;
       }},
  };
  return all;
}

PrecisionInput input_of(const Kind& kind, const Flag& flag, BackendCapabilities machine) {
  PrecisionInput input;
  input.spec = &hybrid();
  hold(input, "checkpoint", {}, {});
  input.backend = std::move(machine);
  kind.make(input);
  flag.set(input.wishes);
  return input;
}

std::string short_reason(const Error& error) {
  const std::string& m = error.message;
  const auto has = [&m](std::string_view text) { return m.find(text) != std::string::npos; };
  if (has("--strict")) return "strict";
  if (has("disagree")) return "files disagree";
  if (has("which can't be done here")) return "not offered";
  if (has("can't be done by")) return "not offered";
  if (has("are 1: either")) return "scales all 1";
  if (has("are missing (")) return "scales missing";
  if (has("there are none")) return "no scales";
  return m;
}

std::string cell(const Expected<Precision>& answer) {
  if (!answer) return "refused: " + short_reason(answer.error());
  std::string text = kv_format_name(answer->kv);
  if (answer->kv_scale_state != KvScaleState::kNotApplicable) {
    text += fmt::format(" ({})", kv_scale_state_name(answer->kv_scale_state));
  }
  return text;
}

std::string table(const BackendCapabilities& machine) {
  std::string text = "| checkpoint |";
  for (const Flag& flag : flags()) text += " " + flag.name + " |";
  text += "\n|---|";
  for (std::size_t i = 0; i < flags().size(); ++i) text += "---|";
  for (const Kind& kind : kinds()) {
    text += "\n| " + kind.name + " |";
    for (const Flag& flag : flags()) text += " " + cell(resolve_precision(input_of(kind, flag, machine))) + " |";
  }
  return text + "\n";
}

TEST(ResolvePrecision, TablesOfTheDocumentAreFresh) {
  constexpr std::string_view kBegin = "<!-- precision tables: generated by plan/precision_test.cc -->\n";
  constexpr std::string_view kEnd = "<!-- end of precision tables -->";
  const std::string page = std::string(STERLING_SOURCE_DIR) + "/docs/numerics.md";
  std::ifstream file(page);
  std::ostringstream stream;
  stream << file.rdbuf();
  const std::string committed = stream.str();
  const std::size_t begin = committed.find(kBegin);
  const std::size_t end = committed.find(kEnd);
  ASSERT_NE(begin, std::string::npos);
  ASSERT_NE(end, std::string::npos);
  const std::string fresh = committed.substr(0, begin) + std::string(kBegin) +
                            "\nThis CPU backend, which offers every type:\n\n" + table(whole_machine()) +
                            "\nA backend that offers `bf16` and `fp32` alone:\n\n" + table(plain_machine()) + "\n" +
                            committed.substr(end);
  if (committed != fresh) std::ofstream("numerics.md") << fresh;
  EXPECT_TRUE(committed == fresh) << page
                                  << " is older than the resolver; the new text lies in the folder the test ran in: "
                                  << "cp build/*/src/plan/numerics.md docs/numerics.md";
}

const PrecisionRow& row_of(const Precision& precision, std::string_view role) {
  const auto found = std::find_if(precision.rows.begin(), precision.rows.end(),
                                  [role](const PrecisionRow& row) { return row.role == role; });
  EXPECT_NE(found, precision.rows.end()) << role;
  return *found;
}

TEST(ResolvePrecision, WhatHoldsOfEveryAnswer) {
  for (const Kind& kind : kinds()) {
    for (const Flag& flag : flags()) {
      for (const BackendCapabilities& machine : {whole_machine(), plain_machine()}) {
        SCOPED_TRACE(kind.name + " / " + flag.name + " / " + machine.name);
        const PrecisionInput input = input_of(kind, flag, machine);
        const auto answer = resolve_precision(input);
        if (!answer) {
          EXPECT_FALSE(answer.error().where.empty());
          EXPECT_THAT(answer.error().message, HasSubstr("--"));
          continue;
        }
        const Precision& p = *answer;
        const bool asked = input.wishes.kv.value.starts_with("fp8") || input.wishes.kv.value == "checkpoint" ||
                           !input.wishes.kv_k.value.empty() || !input.wishes.kv_v.value.empty();
        EXPECT_TRUE(asked || (p.kv.k == KvType::kBf16 && p.kv.v == KvType::kBf16) || input.wishes.kv.value == "fp32");
        for (const KvType type : {p.kv.k, p.kv.v}) {
          EXPECT_NE(std::find(machine.kv_types.begin(), machine.kv_types.end(), type), machine.kv_types.end());
        }
        if (needs_scales(p.kv.k)) {
          EXPECT_EQ(p.kv_scales.k.size(), 2U);
        }
        if (needs_scales(p.kv.v)) {
          EXPECT_EQ(p.kv_scales.v.size(), 2U);
        }
        const bool ones = std::any_of(p.kv_scales.k.begin(), p.kv_scales.k.end(),
                                      [](const auto& layer) { return layer == std::vector<float>{1.0F}; });
        EXPECT_EQ(ones, p.unscaled_accepted);
        EXPECT_TRUE(!p.unscaled_accepted || input.wishes.accept_unscaled_kv);
        EXPECT_EQ(p.unscaled_accepted,
                  std::find(p.warnings.begin(), p.warnings.end(), kUnscaledKvSentence) != p.warnings.end());
        EXPECT_EQ(row_of(p, "kv.keys").effective, kv_type_name(p.kv.k));
        EXPECT_EQ(row_of(p, "kv.values").effective, kv_type_name(p.kv.v));
        EXPECT_EQ(row_of(p, "kv.keys").layers, "1,3");
        EXPECT_EQ(row_of(p, "state.recurrent").effective, "fp32");
        // A wish that is not followed is told.
        const bool followed = input.metadata.wish == kv_type_name(p.kv.k) && p.kv.k == p.kv.v;
        EXPECT_EQ(!p.metadata_note.empty(), (input.metadata.wish.has_value() || input.metadata.disagree) && !followed);
      }
    }
  }
}

PrecisionInput plain_input(const std::string& kind, const std::string& flag) {
  const auto k = std::find_if(kinds().begin(), kinds().end(), [&](const Kind& x) { return x.name == kind; });
  const auto f = std::find_if(flags().begin(), flags().end(), [&](const Flag& x) { return x.name == flag; });
  EXPECT_NE(k, kinds().end()) << kind;
  EXPECT_NE(f, flags().end()) << flag;
  return input_of(*k, *f, whole_machine());
}

TEST(ResolvePrecision, RefusalsSayWhatWasLookedForAndTheWaysForward) {
  const auto none = resolve_precision(plain_input("FP8 wish, no scales", "fp8_e4m3"));
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(none.error().where, "--kv-cache-dtype");
  for (const char* part : {"k_scale and v_scale", "--kv-cache-dtype bf16", "fp8_e4m3_token", "sterling calibrate",
                           "--kv-scales", "--accept-unscaled-kv"}) {
    EXPECT_THAT(none.error().message, HasSubstr(part));
  }
  EXPECT_THAT(none.error().message, ::testing::Not(HasSubstr("cast recipe (kv_fp8_cast")));
  const auto cast = resolve_precision(plain_input("FP8 wish of ModelOpt, no scales (cast recipe)", "fp8_e4m3"));
  ASSERT_FALSE(cast.ok());
  EXPECT_THAT(cast.error().message, HasSubstr("cast recipe (kv_fp8_cast"));
  const auto half = resolve_precision(plain_input("FP8 wish, scales in half the layers", "fp8_e4m3"));
  ASSERT_FALSE(half.ok());
  EXPECT_THAT(half.error().message, HasSubstr("layer 3 K"));
  const auto k_only = resolve_precision(plain_input("no wish, no scales", "K fp8_e4m3"));
  ASSERT_FALSE(k_only.ok());
  EXPECT_EQ(k_only.error().where, "--kv-cache-dtype-k");
  auto unknown = plain_input("no wish, no scales", "none");
  unknown.wishes.kv = {"int3", "flag --kv-cache-dtype"};
  const auto answer = resolve_precision(unknown);
  ASSERT_FALSE(answer.ok());
  EXPECT_THAT(answer.error().message, HasSubstr("bf16, fp32, fp8_e4m3, fp8_e5m2, fp8_e4m3_token"));
}

TEST(ResolvePrecision, ComputeThatIsNotOfferedIsRefusedByName) {
  PrecisionInput input = input_of(kinds()[0], flags()[0], plain_machine());
  input.wishes.compute = {"fp32", "flag --compute"};
  const auto answer = resolve_precision(input);
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().where, "--compute");
  EXPECT_THAT(answer.error().message, HasSubstr("accepted: bf16"));
}

TEST(ResolvePrecision, WeightRowsSayWhatIsHeldAndWhatIsOnlyDeclared) {
  PrecisionInput input = plain_input("no wish, no scales", "none");
  input.weights = {
      {"mlp", "nvfp4", 3, 1000}, {"router", "bf16", 1, 64}, {"attention", "q4_1", 4, 500}, {"mtp", "bf16", 2, 10}};
  input.declared_activation_bits = 4;
  const auto bf16 = resolve_precision(input);
  ASSERT_TRUE(bf16.ok()) << bf16.error().message;
  EXPECT_EQ(row_of(*bf16, "weights.mlp").loaded, "nvfp4");
  EXPECT_EQ(row_of(*bf16, "weights.mlp").granularity, "block 16, tensor");
  EXPECT_EQ(row_of(*bf16, "weights.mlp").bytes, 1000);
  EXPECT_EQ(row_of(*bf16, "weights.router").compute, "fp32");
  EXPECT_EQ(row_of(*bf16, "weights.attention").loaded, "fp32");
  EXPECT_EQ(row_of(*bf16, "weights.mtp").effective, "-");
  EXPECT_THAT(row_of(*bf16, "activations.product_input").reason, HasSubstr("W4A4"));
  input.wishes.compute = {"fp32", "flag --compute"};
  const auto fp32 = resolve_precision(input);
  ASSERT_TRUE(fp32.ok());
  EXPECT_EQ(row_of(*fp32, "weights.mlp").loaded, "fp32");
  EXPECT_EQ(row_of(*fp32, "activations.product_input").effective, "fp32");
}

}  // namespace
}  // namespace sterling::plan
