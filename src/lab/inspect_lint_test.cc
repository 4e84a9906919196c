// Each finding by a checkpoint that has it, and none on one that has not. The checkpoint is a one-layer llama written here.
#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <boost/json.hpp>
#include <gtest/gtest.h>

#include "formats/test_support.h"
#include "lab/inspect.h"
#include "lab/inspect_scales.h"
#include "model/model.h"

namespace sterling::lab {
namespace {

namespace json = boost::json;

struct Stored {
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::string data;
};
using Tensors = std::map<std::string, Stored>;

Stored zeros(const std::string& dtype, std::vector<std::int64_t> shape) {
  std::int64_t bytes = dtype == "F32" ? 4 : dtype == "BF16" ? 2 : 1;
  for (const std::int64_t extent : shape) bytes *= extent;
  return {dtype, std::move(shape), std::string(static_cast<std::size_t>(bytes), '\0')};
}

Stored scalar(float value) {
  return {"F32", {}, formats::little_endian(value)};
}

Tensors llama() {
  Tensors t;
  t["model.embed_tokens.weight"] = zeros("BF16", {40, 32});
  t["model.norm.weight"] = zeros("BF16", {32});
  t["lm_head.weight"] = zeros("BF16", {40, 32});
  const std::string layer = "model.layers.0.";
  t[layer + "input_layernorm.weight"] = zeros("BF16", {32});
  t[layer + "post_attention_layernorm.weight"] = zeros("BF16", {32});
  for (const char* name : {"q", "k", "v", "o"})
    t[layer + "self_attn." + name + "_proj.weight"] = zeros("BF16", {32, 32});
  t[layer + "mlp.gate_proj.weight"] = zeros("BF16", {48, 32});
  t[layer + "mlp.up_proj.weight"] = zeros("BF16", {48, 32});
  t[layer + "mlp.down_proj.weight"] = zeros("BF16", {32, 48});
  return t;
}

json::object config() {
  return {{"architectures", json::array{"LlamaForCausalLM"}},
          {"model_type", "llama"},
          {"hidden_size", 32},
          {"intermediate_size", 48},
          {"num_hidden_layers", 1},
          {"num_attention_heads", 2},
          {"num_key_value_heads", 2},
          {"vocab_size", 40},
          {"max_position_embeddings", 64},
          {"rms_norm_eps", 1e-5},
          {"hidden_act", "silu"},
          {"tie_word_embeddings", false},
          {"rope_theta", 10000.0}};
}

void make_fp8(Tensors& t, const std::string& module, float scale) {
  t[module + ".weight"] = zeros("F8_E4M3", t[module + ".weight"].shape);
  t[module + ".weight_scale"] = scalar(scale);
}

void make_nvfp4(Tensors& t, const std::string& module, char scale_code) {
  const std::vector<std::int64_t> shape = t[module + ".weight"].shape;
  t[module + ".weight"] = zeros("U8", {shape[0], shape[1] / 2});
  Stored scales = zeros("F8_E4M3", {shape[0], shape[1] / 16});
  std::fill(scales.data.begin(), scales.data.end(), scale_code);
  t[module + ".weight_scale"] = std::move(scales);
  t[module + ".weight_scale_2"] = scalar(0.5F);
}

constexpr char kTwo = 0x40;  // 2.0, 1.0, NaN and -2.0 as E4M3
constexpr char kOne = 0x38;
constexpr char kNan = 0x7f;
constexpr char kMinusTwo = static_cast<char>(0xc0);

// The llama with two experts in place of its MLP.
void make_moe(json::object& c, Tensors& t) {
  c["architectures"] = json::array{"Qwen3MoeForCausalLM"};
  c["model_type"] = "qwen3_moe";
  for (const auto& [key, value] : {std::pair{"num_experts", 2},
                                   {"num_experts_per_tok", 1},
                                   {"moe_intermediate_size", 48},
                                   {"head_dim", 16},
                                   {"decoder_sparse_step", 1}})
    c[key] = value;
  c["norm_topk_prob"] = true;
  c["mlp_only_layers"] = json::array{};
  const std::string layer = "model.layers.0.";
  for (const char* name : {"gate", "up", "down"}) {
    const Stored weight = t[layer + "mlp." + name + "_proj.weight"];
    t.erase(layer + "mlp." + name + "_proj.weight");
    for (const char* expert : {"0", "1"}) t[layer + "mlp.experts." + expert + "." + name + "_proj.weight"] = weight;
  }
  t[layer + "mlp.gate.weight"] = zeros("BF16", {2, 32});
  t[layer + "self_attn.q_norm.weight"] = zeros("BF16", {16});
  t[layer + "self_attn.k_norm.weight"] = zeros("BF16", {16});
}

struct Case {
  std::string code;
  void (*damage)(json::object& config, Tensors& tensors, formats::TemporaryFolder& folder);
  bool loadable;
};

const std::string kUp = "model.layers.0.mlp.up_proj";

std::vector<Case> weight_cases() {
  return {
      {"missing_tensor", [](auto&, auto& t, auto&) { t.erase(kUp + ".weight"); }, false},
      {"unused_tensor", [](auto&, auto& t, auto&) { t["model.mystery.weight"] = zeros("BF16", {2}); }, false},
      {"wrong_shape",
       [](auto&, auto& t, auto&) {
         t[kUp + ".weight"] = zeros("BF16", {47, 32});
       },
       false},
      {"missing_scale",
       [](auto&, auto& t, auto&) {
         t[kUp + ".weight"] = zeros("F8_E4M3", {48, 32});
       },
       false},
      {"bad_scale", [](auto&, auto& t, auto&) { make_fp8(t, kUp, 0.0F); }, false},
      {"bad_scale", [](auto&, auto& t, auto&) { make_fp8(t, kUp, -0.5F); }, false},
      {"quantised_unannounced", [](auto&, auto& t, auto&) { make_fp8(t, kUp, 0.5F); }, true},
      {"weight_scales_all_one", [](auto&, auto& t, auto&) { make_fp8(t, kUp, 1.0F); }, true},
      {"quantised_unannounced",
       [](auto& c, auto& t, auto&) {
         make_fp8(t, kUp, 0.5F);
         c["quantization_config"] = json::object{{"quant_algo", "FP8"}, {"ignore", json::array{"lm_head", kUp}}};
       },
       true},
      {"announced_but_not_quantised",
       [](auto& c, auto& t, auto&) {
         make_fp8(t, kUp, 0.5F);
         c["quantization_config"] = json::object{{"quant_algo", "FP8"}, {"ignore", json::array{"lm_head"}}};
       },
       true},
      {"ignore_pattern_unmatched",
       [](auto& c, auto&, auto&) {
         c["quantization_config"] =
             json::object{{"quant_method", "compressed-tensors"}, {"ignore", json::array{"model.layers.7*"}}};
       },
       true},
      {"activations_quantised",
       [](auto& c, auto&, auto&) {
         c["quantization_config"] = json::object{{"quant_algo", "NVFP4"}};
       },
       true},
      {"norm_quantised", [](auto&, auto& t, auto&) { t["model.norm.weight"] = zeros("F8_E4M3", {32}); }, false},
      {"a_log_below_fp32", [](auto&, auto& t, auto&) { t["model.layers.0.linear_attn.A_log"] = zeros("BF16", {4}); },
       false},
      {"kv_scales_all_one",
       [](auto& c, auto& t, auto&) {
         c["quantization_config"] = json::object{{"kv_cache_scheme", "FP8"}};
         t["model.layers.0.self_attn.k_proj.k_scale"] = scalar(1.0F);
         t["model.layers.0.self_attn.v_proj.v_scale"] = scalar(1.0F);
       },
       true},
      {"lm_head_quantised", [](auto&, auto& t, auto&) { make_fp8(t, "lm_head", 0.5F); }, true},
      {"unsupported_quantisation",
       [](auto& c, auto&, auto&) {
         c["quantization_config"] = json::object{{"quant_method", "awq"}, {"bits", 4}};
       },
       false},
      {"unsupported_quantisation", [](auto&, auto& t, auto&) { t[kUp + ".qweight"] = zeros("U8", {4}); }, false},
      {"unsupported_quantisation",
       [](auto& c, auto&, auto&) {
         c["quantization_config"] = json::object{{"quant_algo", 7}};
       },
       false},
      {"kv_wish_without_scales",
       [](auto& c, auto&, auto&) {
         c["quantization_config"] = json::object{{"kv_cache_scheme", "FP8"}};
       },
       true},
      {"fp8_kv_without_qk_norm",
       [](auto& c, auto&, auto&) {
         c["quantization_config"] = json::object{{"kv_cache_scheme", "FP8"}};
       },
       true},
      {"bad_scale", [](auto&, auto& t, auto&) { make_nvfp4(t, kUp, kNan); }, false},
      {"bad_scale", [](auto&, auto& t, auto&) { make_nvfp4(t, kUp, kMinusTwo); }, false},
      {"block_scale_zero", [](auto&, auto& t, auto&) { make_nvfp4(t, kUp, 0); }, true},
      {"weight_scales_all_one", [](auto&, auto& t, auto&) { make_nvfp4(t, kUp, kOne); }, true},
      {"format_contradicts_config",
       [](auto& c, auto& t, auto&) {
         make_nvfp4(t, kUp, kTwo);
         c["quantization_config"] = json::object{{"quant_algo", "FP8"}};
       },
       true},
      {"format_contradicts_config",
       [](auto& c, auto& t, auto&) {
         make_fp8(t, kUp, 0.5F);
         c["quantization_config"] = json::object{{"quant_method", "fp8"}, {"weight_block_size", json::array{128, 128}}};
       },
       true},
      {"router_quantised",
       [](auto& c, auto& t, auto&) {
         make_moe(c, t);
         make_fp8(t, "model.layers.0.mlp.gate", 0.5F);
       },
       true},
  };
}

std::vector<Case> storage_cases() {
  return {
      // Twice: codes in both layouts of one module, a part and what it is fused from, fused experts beside single ones.
      {"stored_twice",
       [](auto&, auto& t, auto&) {
         make_nvfp4(t, kUp, kTwo);
         t[kUp + ".weight_packed"] = t[kUp + ".weight"];
       },
       false},
      {"stored_twice",
       [](auto&, auto& t, auto&) {
         t["model.layers.0.mlp.gate_up_proj.weight"] = zeros("BF16", {96, 32});
       },
       false},
      {"stored_twice",
       [](auto& c, auto& t, auto&) {
         make_moe(c, t);
         t["model.layers.0.mlp.experts.gate_up_proj"] = zeros("BF16", {2, 96, 32});
         t["model.layers.0.mlp.experts.down_proj"] = zeros("BF16", {2, 32, 48});
       },
       false},
      {"stored_twice",
       [](auto&, auto& t, auto&) {
         t["model.language_model.layers.0.input_layernorm.weight"] = t["model.layers.0.input_layernorm.weight"];
       },
       false},
      // Both scales of one weight, and a tied head that is stored as well: loading takes one of the two.
      {"stored_twice",
       [](auto&, auto& t, auto&) {
         make_fp8(t, kUp, 0.5F);
         t[kUp + ".weight_scale_inv"] = scalar(0.5F);
       },
       true},
      {"stored_twice", [](auto& c, auto&, auto&) { c["tie_word_embeddings"] = true; }, true},
      {"tokenizer_beyond_vocabulary",
       [](auto&, auto&, auto& folder) {
         folder.write("tokenizer.json", R"({"model": {"vocab": {"a": 0, "b": 40}}, "added_tokens": []})");
       },
       true},
      {"vocabulary_padded",
       [](auto&, auto&, auto& folder) {
         folder.write("tokenizer.json",
                      R"({"model": {"vocab": {"a": 0}}, "added_tokens": [{"id": 5, "content": "x"}]})");
       },
       true},
  };
}

std::vector<Case> cases() {
  std::vector<Case> all = weight_cases();
  for (Case& one : storage_cases()) all.push_back(std::move(one));
  return all;
}

std::string serialize(const Tensors& tensors) {
  json::object header;
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    header[name] = json::object{{"dtype", tensor.dtype},
                                {"shape", json::value_from(tensor.shape)},
                                {"data_offsets", json::array{data.size(), data.size() + tensor.data.size()}}};
    data += tensor.data;
  }
  return formats::safetensors_bytes(json::serialize(header), data);
}

Inspection inspect_with(const Case* c) {
  formats::TemporaryFolder folder;
  json::object settings = config();
  Tensors tensors = llama();
  if (c != nullptr) c->damage(settings, tensors, folder);
  folder.write("config.json", json::serialize(settings));
  folder.write("model.safetensors", serialize(tensors));
  auto result = inspect(folder.path());
  EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().message);
  return result.ok() ? *result : Inspection{};
}

bool has(const Inspection& inspection, const std::string& code) {
  return std::any_of(inspection.lint.begin(), inspection.lint.end(),
                     [&](const LintFinding& f) { return f.code == code; });
}

TEST(InspectLint, EachFindingHasItsCause) {
  const Inspection intact = inspect_with(nullptr);
  EXPECT_TRUE(intact.loadable) << intact.load_error.value_or("");
  for (const Case& c : cases()) {
    const Inspection inspection = inspect_with(&c);
    EXPECT_TRUE(has(inspection, c.code)) << c.code;
    EXPECT_FALSE(has(intact, c.code)) << c.code;
    EXPECT_EQ(inspection.loadable, c.loadable) << c.code << ": " << inspection.load_error.value_or("");
  }
}

TEST(InspectLint, IntactModelOfExpertsHasNone) {
  const Case intact{"", [](auto& c, auto& t, auto&) { make_moe(c, t); }, true};
  const Inspection inspection = inspect_with(&intact);
  EXPECT_TRUE(inspection.loadable) << inspection.load_error.value_or("");
  EXPECT_FALSE(has(inspection, "router_quantised"));
  EXPECT_FALSE(has(inspection, "stored_twice"));
}

TEST(InspectLint, NarrowTargetsAreHonoured) {
  const auto groups = [](const char* target) {
    return json::object{
        {"group_0", json::object{{"targets", json::array{target}},
                                 {"weights", json::object{{"num_bits", 4}, {"type", "float"}, {"group_size", 16}}}}}};
  };
  for (const char* target : {"re:.*mlp\\.up_proj", "model.layers.0.mlp.up_proj"}) {
    formats::TemporaryFolder folder;
    json::object settings = config();
    Tensors tensors = llama();
    make_nvfp4(tensors, kUp, kTwo);
    settings["quantization_config"] = json::object{
        {"quant_method", "compressed-tensors"}, {"format", "nvfp4-pack-quantized"}, {"config_groups", groups(target)}};
    folder.write("config.json", json::serialize(settings));
    folder.write("model.safetensors", serialize(tensors));
    const auto inspection = inspect(folder.path());
    ASSERT_TRUE(inspection.ok());
    for (const char* code : {"announced_but_not_quantised", "quantised_unannounced", "format_contradicts_config"}) {
      EXPECT_FALSE(has(*inspection, code)) << target << ": " << code;
    }
  }
  // Every matrix is announced by "Linear": six of llama's are plain.
  const Case wide{"",
                  [](auto& c, auto& t, auto&) {
                    make_nvfp4(t, kUp, kTwo);
                    c["quantization_config"] =
                        json::object{{"quant_method", "compressed-tensors"}, {"format", "nvfp4-pack-quantized"}};
                  },
                  true};
  EXPECT_TRUE(has(inspect_with(&wide), "announced_but_not_quantised"));
}

TEST(InspectLint, ScalesBeyondTheBudgetAreSampledAndSaidSo) {
  formats::TemporaryFolder folder;
  Tensors tensors = llama();
  make_nvfp4(tensors, kUp, kTwo);
  make_nvfp4(tensors, "model.layers.0.mlp.gate_proj", kTwo);
  folder.write("config.json", json::serialize(config()));
  folder.write("model.safetensors", serialize(tensors));
  const auto checkpoint = formats::Checkpoint::open(folder.path());
  ASSERT_TRUE(checkpoint.ok());
  const model::Examination examination = model::examine(*checkpoint);
  std::vector<LintFinding> lint;
  EXPECT_EQ(lint_block_scales(*checkpoint, examination, lint), std::nullopt);
  EXPECT_TRUE(lint.empty());
  EXPECT_EQ(lint_block_scales(*checkpoint, examination, lint, 100), std::nullopt);  // 2 x 96 bytes are there
  ASSERT_EQ(lint.size(), 1U);
  EXPECT_EQ(lint[0].code, "scales_sampled");
  EXPECT_EQ(lint[0].message.substr(0, 16), "96 of 192 bytes ");
}

TEST(InspectLint, FaultsOfMetadataNameTheFolder) {
  formats::TemporaryFolder folder;
  json::object settings = config();
  settings["quantization_config"] = json::object{{"quant_algo", 7}};
  folder.write("config.json", json::serialize(settings));
  folder.write("model.safetensors", serialize(llama()));
  const auto inspection = inspect(folder.path());
  ASSERT_TRUE(inspection.ok());
  EXPECT_NE(inspection->load_error.value_or("").find(folder.path().string() + "/config.json"), std::string::npos)
      << inspection->load_error.value_or("");
}

}  // namespace
}  // namespace sterling::lab
