// Expected counts are plain arithmetic on the shapes written here, and the published totals of Qwen3.5 models.
#include "lab/inspect.h"

#include <string>
#include <vector>

#include <boost/json.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/test_support.h"
#include "lab/inspect_dimensions.h"
#include "lab/inspect_kv.h"
#include "lab/inspect_weights.h"
#include "lab/parameter_count.h"

namespace sterling::lab {
namespace {

namespace json = boost::json;
using formats::TemporaryFolder;
using testing::HasSubstr;

struct FakeTensor {
  std::string name, dtype;
  std::vector<std::int64_t> shape;
  std::string data;  // zeros of the right size when empty
};

std::int64_t bytes_of(const std::string& dtype) {
  if (dtype == "F32") return 4;
  return dtype == "BF16" ? 2 : 1;
}

std::string safetensors(const std::vector<FakeTensor>& tensors) {
  json::object header;
  std::string data;
  for (const FakeTensor& tensor : tensors) {
    std::int64_t size = bytes_of(tensor.dtype);
    for (const std::int64_t extent : tensor.shape) size *= extent;
    const std::size_t begin = data.size();
    data += tensor.data.empty() ? std::string(static_cast<std::size_t>(size), '\0') : tensor.data;
    header[tensor.name] = json::object{{"dtype", tensor.dtype},
                                       {"shape", json::value_from(tensor.shape)},
                                       {"data_offsets", json::array{begin, data.size()}}};
  }
  return formats::safetensors_bytes(json::serialize(header), data);
}

// Two layers, hidden 8, 2 heads of 4, 1 KV head, MLP 12, vocabulary 10, untied.
constexpr std::string_view kConfig = R"({
  "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 8, "intermediate_size": 12,
  "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 10,
  "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": false,
  "rope_theta": 10000.0)";

std::vector<FakeTensor> llama_tensors() {
  std::vector<FakeTensor> tensors{{"model.embed_tokens.weight", "BF16", {10, 8}, {}},
                                  {"model.norm.weight", "BF16", {8}, {}},
                                  {"lm_head.weight", "BF16", {10, 8}, {}}};
  for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
    tensors.push_back({layer + "input_layernorm.weight", "BF16", {8}, {}});
    tensors.push_back({layer + "post_attention_layernorm.weight", "BF16", {8}, {}});
    tensors.push_back({layer + "self_attn.q_proj.weight", "BF16", {8, 8}, {}});
    tensors.push_back({layer + "self_attn.k_proj.weight", "BF16", {4, 8}, {}});
    tensors.push_back({layer + "self_attn.v_proj.weight", "BF16", {4, 8}, {}});
    tensors.push_back({layer + "self_attn.o_proj.weight", "BF16", {8, 8}, {}});
    tensors.push_back({layer + "mlp.gate_proj.weight", "BF16", {12, 8}, {}});
    tensors.push_back({layer + "mlp.up_proj.weight", "BF16", {12, 8}, {}});
    tensors.push_back({layer + "mlp.down_proj.weight", "BF16", {8, 12}, {}});
  }
  return tensors;
}

Inspection inspect_folder(const TemporaryFolder& folder) {
  auto result = inspect(folder.path());
  EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().message);
  return result.ok() ? *result : Inspection{};
}

const WeightGroup* find_group(const Inspection& inspection, std::string_view group, std::string_view format) {
  for (const WeightGroup& row : *inspection.weights) {
    if (row.group == group && row.format == format) return &row;
  }
  return nullptr;
}

std::vector<std::string> codes(const Inspection& inspection) {
  std::vector<std::string> result;
  for (const LintFinding& finding : inspection.lint) result.push_back(finding.code);
  return result;
}

TEST(Inspect, CountsAPlainModel) {
  const TemporaryFolder folder;
  folder.write("config.json", std::string(kConfig) + "}");
  folder.write("model.safetensors", safetensors(llama_tensors()));
  const Inspection inspection = inspect_folder(folder);

  EXPECT_TRUE(inspection.supported) << inspection.unsupported_reason.value_or("");
  EXPECT_EQ(inspection.format, "safetensors");
  EXPECT_EQ(inspection.dimensions.layers, 2);
  EXPECT_EQ(inspection.dimensions.full_attention_layers, 2);
  EXPECT_EQ(inspection.dimensions.linear_attention_layers, 0);
  EXPECT_EQ(inspection.dimensions.head_dim, 4);
  EXPECT_EQ(inspection.dimensions.experts, 0);
  // 2 × 10 × 8 embeddings and head, 2 × (64 + 32 + 32 + 64) attention, 2 × 288 MLP, 5 × 8 norms.
  EXPECT_EQ(inspection.parameters.total, 160 + 384 + 576 + 40);
  EXPECT_EQ(inspection.parameters.active_per_token, inspection.parameters.total);
  EXPECT_EQ(inspection.parameters.mtp, 0);
  EXPECT_EQ(inspection.bytes->total, 2 * 1160);
  ASSERT_NE(find_group(inspection, "attention", "bf16"), nullptr);
  EXPECT_EQ(find_group(inspection, "attention", "bf16")->tensors, 8);
  EXPECT_EQ(find_group(inspection, "attention", "bf16")->parameters, 384);
  EXPECT_EQ(find_group(inspection, "norms", "bf16")->tensors, 5);
  EXPECT_EQ(find_group(inspection, "mlp", "bf16")->bytes, 1152);
  // 1 KV head: K of 4 dims, V padded to 16, 2 layers, as plan/memory.h stores them.
  EXPECT_EQ(inspection.kv_bytes_per_token->bf16, 2 * (4 + 16) * 2);
  EXPECT_EQ(inspection.kv_bytes_per_token->fp8_e4m3, 2 * (4 + 16));
  EXPECT_EQ(inspection.kv_bytes_per_token->fp32, 2 * (4 + 16) * 4);
  EXPECT_EQ(inspection.state_bytes_per_sequence, 0);
  EXPECT_EQ(inspection.kv_cache.wish, std::nullopt);
  EXPECT_THAT(codes(inspection), testing::ElementsAre("tokenizer_missing", "chat_template_missing"));
}

TEST(Inspect, NamesTheTensorThatIsMissingOrTooMuch) {
  const TemporaryFolder folder;
  folder.write("config.json", std::string(kConfig) + "}");
  std::vector<FakeTensor> tensors = llama_tensors();
  tensors.back().name = "model.layers.1.mlp.mystery.weight";
  folder.write("model.safetensors", safetensors(tensors));
  const Inspection inspection = inspect_folder(folder);
  EXPECT_FALSE(inspection.supported);
  EXPECT_THAT(inspection.unsupported_reason.value_or(""), HasSubstr("model.layers.1.mlp.down_proj.weight"));
  ASSERT_FALSE(inspection.lint.empty());
  EXPECT_EQ(inspection.lint[0].code, "missing_tensor");
  EXPECT_EQ(inspection.lint[1].code, "unused_tensor");
  EXPECT_FALSE(inspection.loadable);
  EXPECT_EQ(inspection.lint[0].severity, LintSeverity::kError);
  EXPECT_EQ(inspection.parameters.total, 1160);  // counted all the same
}

TEST(Inspect, KvWishAndScales) {
  const TemporaryFolder folder;
  folder.write("config.json", std::string(kConfig) + R"(, "quantization_config": {"quant_method": "modelopt",
      "kv_cache_scheme": {"num_bits": 8, "type": "float", "dynamic": false}}})");
  folder.write("hf_quant_config.json",
               R"({"producer": {"name": "modelopt"}, "quantization": {"kv_cache_quant_algo": "FP8"}})");
  std::vector<FakeTensor> tensors = llama_tensors();
  tensors.push_back({"model.layers.0.self_attn.k_proj.k_scale", "F32", {}, formats::little_endian(0.25F)});
  tensors.push_back({"model.layers.0.self_attn.v_proj.v_scale", "F32", {}, formats::little_endian(2.0F)});
  tensors.push_back({"model.layers.1.self_attn.k_proj.k_scale", "F32", {}, formats::little_endian(1.0F)});
  folder.write("model.safetensors", safetensors(tensors));
  const Inspection inspection = inspect_folder(folder);
  const KvCacheFacts& kv = inspection.kv_cache;
  EXPECT_EQ(kv.wish, "fp8_e4m3");
  ASSERT_EQ(kv.sources.size(), 2U);
  EXPECT_EQ(kv.sources[0].key, "quantization_config.kv_cache_scheme");
  EXPECT_EQ(kv.sources[1].file, "hf_quant_config.json");
  EXPECT_FALSE(kv.sources_disagree);
  EXPECT_EQ(kv.scales.expected, 4);
  EXPECT_EQ(kv.scales.found, 3);
  EXPECT_EQ(kv.scales.all_one, false);
  EXPECT_EQ(kv.scales.min, 0.25);
  EXPECT_EQ(kv.scales.max, 2.0);
  EXPECT_EQ(kv.effective_by_default, "bf16");
  EXPECT_THAT(codes(inspection), testing::Contains("kv_scales_incomplete"));
  // Scales count with the weight they hang on, and are no parameters.
  EXPECT_EQ(inspection.parameters.total, 1160);
  EXPECT_EQ(inspection.bytes->total, 2 * 1160 + 12);
  EXPECT_EQ(find_group(inspection, "attention", "bf16")->tensors, 11);
}

TEST(Inspect, SourcesThatDisagree) {
  const TemporaryFolder folder;
  folder.write("config.json", std::string(kConfig) + R"(, "quantization_config": {"quant_method": "modelopt"}})");
  folder.write("hf_quant_config.json", R"({"quantization": {"kv_cache_quant_algo": "FP8"}})");
  folder.write("model.safetensors", safetensors(llama_tensors()));
  const Inspection inspection = inspect_folder(folder);
  EXPECT_EQ(inspection.kv_cache.wish, "fp8_e4m3");
  EXPECT_TRUE(inspection.kv_cache.sources_disagree);
  EXPECT_THAT(codes(inspection), testing::IsSupersetOf({"kv_wish_sources_disagree", "kv_wish_without_scales"}));
}

TEST(Inspect, InvalidScaleIsAnError) {
  const TemporaryFolder folder;
  folder.write("config.json", std::string(kConfig) + R"(, "quantization_config": {"kv_cache_scheme": "FP8"}})");
  std::vector<FakeTensor> tensors = llama_tensors();
  tensors.push_back(
      {"model.layers.0.self_attn.k_proj.k_scale", "F32", {}, formats::little_endian(std::uint32_t{0x7fc00000})});
  folder.write("model.safetensors", safetensors(tensors));
  const Inspection inspection = inspect_folder(folder);
  EXPECT_THAT(codes(inspection), testing::Contains("kv_scale_invalid"));
  EXPECT_EQ(inspection.kv_cache.scales.min, std::nullopt);
}

TEST(Inspect, PackedAndScaledFormats) {
  const TemporaryFolder folder;
  folder.write("config.json",
               R"({"architectures": ["SomeMoeForCausalLM"], "model_type": "some_moe", "num_hidden_layers": 1,
      "hidden_size": 32, "num_experts": 2, "num_experts_per_tok": 1, "vocab_size": 4, "num_nextn_predict_layers": 1})");
  folder.write("model.safetensors",
               safetensors({{"model.layers.0.mlp.experts.0.up_proj.weight", "U8", {16, 16}, {}},
                            {"model.layers.0.mlp.experts.0.up_proj.weight_scale", "F8_E4M3", {16, 2}, {}},
                            {"model.layers.0.mlp.experts.0.up_proj.weight_scale_2", "F32", {}, {}},
                            {"model.layers.0.mlp.experts.1.up_proj.weight_packed", "U8", {16, 16}, {}},
                            {"model.layers.0.mlp.experts.1.up_proj.weight_scale", "F8_E4M3", {16, 2}, {}},
                            {"model.layers.0.mlp.experts.1.up_proj.weight_global_scale", "F32", {1}, {}},
                            {"model.layers.0.self_attn.q_proj.weight", "F8_E4M3", {8, 32}, {}},
                            {"model.layers.0.self_attn.q_proj.weight_scale", "F32", {8, 1}, {}},
                            {"model.layers.0.self_attn.k_proj.weight", "F8_E4M3", {8, 32}, {}},
                            {"model.layers.0.self_attn.k_proj.weight_scale", "F32", {}, {}},
                            {"model.layers.0.self_attn.v_proj.weight", "F8_E4M3", {8, 32}, {}},
                            {"model.layers.0.self_attn.v_proj.weight_scale_inv", "BF16", {1, 2}, {}},
                            {"model.layers.0.self_attn.o_proj.weight", "F8_E4M3", {8, 32}, {}},
                            {"model.layers.1.mlp.up_proj.weight", "BF16", {4, 4}, {}}}));
  const Inspection inspection = inspect_folder(folder);
  EXPECT_FALSE(inspection.supported);
  EXPECT_THAT(inspection.unsupported_reason.value_or(""), HasSubstr("SomeMoeForCausalLM"));
  const WeightGroup* experts = find_group(inspection, "routed_experts", "nvfp4");
  ASSERT_NE(experts, nullptr);
  EXPECT_EQ(experts->tensors, 6);
  EXPECT_EQ(experts->parameters, 2 * 16 * 32);
  EXPECT_EQ(experts->bytes, 2 * (256 + 32 + 4));
  EXPECT_NE(find_group(inspection, "attention", "fp8_e4m3_channel"), nullptr);
  EXPECT_NE(find_group(inspection, "attention", "fp8_e4m3_tensor"), nullptr);
  EXPECT_NE(find_group(inspection, "attention", "fp8_e4m3_block"), nullptr);
  EXPECT_NE(find_group(inspection, "attention", "fp8_e4m3"), nullptr);  // o_proj: its scale is missing
  EXPECT_THAT(codes(inspection), testing::Contains("weight_scale_missing"));
  EXPECT_EQ(inspection.parameters.mtp, 16);  // a layer beyond num_hidden_layers
  // All four attention matrices, and one expert of two.
  EXPECT_EQ(inspection.parameters.text, 4 * 256 + 1024);
  EXPECT_EQ(inspection.parameters.active_per_token, 4 * 256 + 512);
}

TEST(Inspect, JsonHasEveryFieldAndNullForTheUnknown) {
  const TemporaryFolder folder;
  folder.write("config.json",
               R"({"architectures": ["MysteryForCausalLM"], "num_hidden_layers": "two", "hidden_size": 1e300})");
  const json::object object = inspection_json(inspect_folder(folder));
  for (const char* key : {"path",
                          "format",
                          "weights_present",
                          "architecture",
                          "model_type",
                          "supported",
                          "unsupported_reason",
                          "layers",
                          "full_attention_layers",
                          "linear_attention_layers",
                          "hidden_size",
                          "vocab_size",
                          "heads",
                          "kv_heads",
                          "head_dim",
                          "experts",
                          "experts_per_token",
                          "mtp_layers",
                          "max_position_embeddings",
                          "parameters",
                          "bytes",
                          "weights",
                          "kv_cache",
                          "kv_bytes_per_token",
                          "state_bytes_per_sequence",
                          "lint"}) {
    EXPECT_TRUE(object.contains(key)) << key;
  }
  EXPECT_EQ(object.at("format"), "config-only");
  EXPECT_EQ(object.at("weights_present"), false);
  EXPECT_TRUE(object.at("layers").is_null());
  EXPECT_TRUE(object.at("hidden_size").is_null());
  EXPECT_TRUE(object.at("weights").is_null());
  EXPECT_TRUE(object.at("bytes").at("total").is_null());
  EXPECT_TRUE(object.at("kv_bytes_per_token").at("bf16").is_null());
  EXPECT_TRUE(object.at("kv_cache").at("wish").is_null());
}

// --- counts from a configuration alone, against published totals

json::object hybrid_config(std::string_view sizes, std::string_view vision) {
  return json::parse(
             std::string(
                 R"({"model_type": "qwen3_5", "vision_config": {"depth": 27, "hidden_size": 1152, "in_channels": 3,
      "intermediate_size": 4304, "num_position_embeddings": 2304, "patch_size": 16, "spatial_merge_size": 2,
      "temporal_patch_size": 2, )") +
             std::string(vision) + R"(}, "text_config": {"head_dim": 256, "vocab_size": 248320,
      "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_num_key_heads": 16,
      "full_attention_interval": 4, "mtp_num_hidden_layers": 1, "attention_bias": false, )" +
             std::string(sizes) + R"(}, "tie_word_embeddings": false})")
      .get_object();
}

TEST(ParameterCount, Qwen35Of27B) {
  const json::object config = hybrid_config(
      R"("hidden_size": 5120, "intermediate_size": 17408, "num_hidden_layers": 64, "num_attention_heads": 24,
         "num_key_value_heads": 4, "linear_num_value_heads": 48)",
      R"("out_hidden_size": 5120)");
  const ModelDimensions dimensions = read_dimensions(config);
  EXPECT_EQ(dimensions.full_attention_layers, 16);
  EXPECT_EQ(dimensions.linear_attention_layers, 48);
  const ParameterCounts counts = count_parameters(config, dimensions);
  EXPECT_EQ(counts.text, 26'895'998'464);
  EXPECT_EQ(counts.mtp, 424'699'392);
  EXPECT_EQ(counts.vision, 460'730'096);
  EXPECT_EQ(counts.total, 27'781'427'952);
  EXPECT_EQ(kv_bytes_per_token(config, dimensions)->bf16, 65'536);
}

TEST(ParameterCount, Qwen35MoeOf397B) {
  json::object config = hybrid_config(
      R"("hidden_size": 4096, "moe_intermediate_size": 1024, "shared_expert_intermediate_size": 1024, "num_experts": 512,
         "num_experts_per_tok": 10, "num_hidden_layers": 60, "num_attention_heads": 32, "num_key_value_heads": 2,
         "linear_num_value_heads": 64, "mlp_only_layers": [])",
      R"("out_hidden_size": 4096)");
  config["model_type"] = "qwen3_5_moe";
  const ModelDimensions dimensions = read_dimensions(config);
  const ParameterCounts counts = count_parameters(config, dimensions);
  EXPECT_EQ(counts.text, 396'346'350'336);
  EXPECT_EQ(counts.mtp, 6'595'568'128);
  EXPECT_EQ(counts.vision, 456'010'480);
  EXPECT_EQ(kv_bytes_per_token(config, dimensions)->bf16, 30'720);
  EXPECT_EQ(kv_bytes_per_token(config, dimensions)->fp8_e4m3, 15'360);
  EXPECT_EQ(state_bytes_per_sequence(config, dimensions), 8 * 24'422'400);
}

TEST(ParameterCount, AbsurdSizesGiveNoCount) {
  json::object config = hybrid_config(
      R"("hidden_size": 1048577, "intermediate_size": 17408, "num_hidden_layers": 64, "num_attention_heads": 24,
         "num_key_value_heads": 4, "linear_num_value_heads": 48)",
      R"("out_hidden_size": 5120)");
  EXPECT_EQ(count_parameters(config, read_dimensions(config)).text, std::nullopt);
  config["model_type"] = "no_such_family";
  EXPECT_EQ(count_parameters(config, read_dimensions(config)).total, std::nullopt);
}

// --- single rules

TEST(KvWish, Spellings) {
  EXPECT_EQ(formats::canonical_kv_wish("FP8"), "fp8_e4m3");
  EXPECT_EQ(formats::canonical_kv_wish("NVFP4"), "nvfp4");
  EXPECT_EQ(formats::canonical_kv_wish("INT8"), "int8");
  EXPECT_EQ(formats::canonical_kv_wish(nullptr), std::nullopt);
  EXPECT_EQ(formats::canonical_kv_wish(json::parse(R"({"num_bits": 8, "type": "float"})")), "fp8_e4m3");
  EXPECT_EQ(formats::canonical_kv_wish(json::parse(R"({"num_bits": 8, "type": "int"})")), "int8");
  EXPECT_EQ(formats::canonical_kv_wish(json::parse(R"({"num_bits": 4, "type": "float"})")), "nvfp4");
  EXPECT_EQ(formats::canonical_kv_wish(7), "unknown");
}

TEST(WeightGroups, Names) {
  const auto group = [](std::string_view name) { return std::string(weight_group(name, 2, true)); };
  EXPECT_EQ(group("model.language_model.embed_tokens.weight"), "embedding");
  EXPECT_EQ(group("model.layers.1.self_attn.q_norm.weight"), "norms");
  EXPECT_EQ(group("model.layers.1.linear_attn.norm.weight"), "norms");
  EXPECT_EQ(group("model.layers.1.linear_attn.A_log"), "linear_attention");
  EXPECT_EQ(group("model.layers.0.mlp.gate.weight"), "router");
  EXPECT_EQ(group("model.layers.0.mlp.gate_proj.weight"), "mlp");
  EXPECT_EQ(group("model.layers.0.mlp.experts.gate_up_proj"), "routed_experts");
  EXPECT_EQ(group("model.layers.0.block_sparse_moe.experts.3.w1.weight"), "routed_experts");
  EXPECT_EQ(group("model.layers.0.mlp.shared_expert_gate.weight"), "shared_expert");
  EXPECT_EQ(group("mtp.layers.0.mlp.experts.0.up_proj.weight"), "mtp");
  EXPECT_EQ(group("model.layers.2.self_attn.q_proj.weight"), "mtp");
  EXPECT_EQ(group("model.visual.blocks.12.norm1.weight"), "vision");
  EXPECT_EQ(group("model.something"), "other");
}

TEST(LayerCounts, FromEveryKindOfConfiguration) {
  const auto dimensions = [](std::string_view text) { return read_dimensions(json::parse(text).get_object()); };
  const auto sliding = dimensions(
      R"({"num_hidden_layers": 3, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]})");
  EXPECT_EQ(sliding.full_attention_layers, 1);
  EXPECT_EQ(sliding.sliding_attention_layers, 2);
  const auto mamba = dimensions(R"({"num_hidden_layers": 4, "hybrid_override_pattern": "ME*M"})");
  EXPECT_EQ(mamba.full_attention_layers, 1);
  EXPECT_EQ(mamba.linear_attention_layers, 2);
  const auto contradiction = dimensions(R"({"num_hidden_layers": 3, "layer_types": ["full_attention"]})");
  EXPECT_EQ(contradiction.full_attention_layers, std::nullopt);
  const auto window = dimensions(R"({"num_hidden_layers": 3, "sliding_window": 4096})");
  EXPECT_EQ(window.full_attention_layers, std::nullopt);
  EXPECT_EQ(dimensions(R"({"num_hidden_layers": 3, "sliding_window": 4096, "use_sliding_window": false})")
                .full_attention_layers,
            3);
}

TEST(KvBytes, LatentAttention) {
  const auto config = json::parse(R"({"num_hidden_layers": 61, "kv_lora_rank": 512, "qk_rope_head_dim": 64,
      "num_attention_heads": 128, "hidden_size": 7168})")
                          .get_object();
  const auto bytes = kv_bytes_per_token(config, read_dimensions(config));
  ASSERT_TRUE(bytes.has_value());
  EXPECT_EQ(bytes->bf16, 70'272);
  EXPECT_EQ(bytes->fp8_e4m3, 35'136);
}

}  // namespace
}  // namespace sterling::lab
