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

struct Case {
  std::string code;
  void (*damage)(json::object& config, Tensors& tensors, formats::TemporaryFolder& folder);
  bool loadable;
};

const std::string kUp = "model.layers.0.mlp.up_proj";

std::vector<Case> cases() {
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

}  // namespace
}  // namespace sterling::lab
