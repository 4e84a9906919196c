#include "formats/gguf_model.h"

#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/gguf_builder.h"

namespace sterling::formats {
namespace {

using ::testing::HasSubstr;

// A tiny model: hidden 8, 2 heads of 4, 1 KV head, 1 layer, 3 tokens.
GgufBuilder tiny_metadata(const std::string& arch) {
  GgufBuilder b;
  b.string("general.architecture", arch).u32(arch + ".block_count", 1).u32(arch + ".context_length", 64);
  b.u32(arch + ".embedding_length", 8).u32(arch + ".feed_forward_length", 16).u32(arch + ".attention.head_count", 2);
  b.u32(arch + ".attention.head_count_kv", 1).f32(arch + ".attention.layer_norm_rms_epsilon", 0.5f);
  return b;
}

GgufBuilder tiny_tensors(GgufBuilder b) {
  b.zeros("token_embd.weight", {8, 3}).zeros("output_norm.weight", {8}).zeros("blk.0.attn_norm.weight", {8});
  b.zeros("blk.0.ffn_norm.weight", {8}).zeros("blk.0.attn_q.weight", {8, 8}).zeros("blk.0.attn_k.weight", {8, 4});
  b.zeros("blk.0.attn_v.weight", {8, 4})
      .zeros("blk.0.attn_output.weight", {8, 8})
      .zeros("blk.0.ffn_gate.weight", {8, 16});
  return b.zeros("blk.0.ffn_up.weight", {8, 16}).zeros("blk.0.ffn_down.weight", {16, 8});
}

struct Result {
  std::string message = "accepted";
  GgufModel model;
};

// Conversion of a file; views in the model are not to be touched afterwards.
Result convert(const GgufBuilder& builder) {
  const std::string bytes = builder.bytes();
  const auto contents = parse_gguf(as_bytes(bytes), "m.gguf");
  if (!contents.ok()) return {contents.error().message, {}};
  auto model = gguf_model(*contents, "m.gguf");
  if (!model.ok()) return {model.error().message, {}};
  return {"accepted", std::move(*model)};
}

std::string message_with(const std::function<void(GgufBuilder&)>& change, const std::string& arch = "llama") {
  GgufBuilder b = tiny_metadata(arch);
  change(b);
  return convert(tiny_tensors(b)).message;
}

TEST(GgufModel, SpeaksHuggingFacesLanguage) {
  GgufBuilder b = tiny_metadata("llama");
  b.f32("llama.rope.freq_base", 500000.0f).u32("llama.rope.dimension_count", 4).u32("llama.vocab_size", 3);
  b.string("llama.rope.scaling.type", "linear").f32("llama.rope.scaling.factor", 8.0f);
  const Result result = convert(tiny_tensors(b));
  ASSERT_EQ(result.message, "accepted");
  EXPECT_EQ(boost::json::serialize(result.model.config),
            R"({"architectures":["LlamaForCausalLM"],"model_type":"llama","hidden_size":8,"intermediate_size":16,)"
            R"("num_hidden_layers":1,"num_attention_heads":2,"num_key_value_heads":1,"head_dim":4,"hidden_act":"silu",)"
            R"("max_position_embeddings":64,"rms_norm_eps":5E-1,"rope_theta":5E5,)"
            R"("rope_scaling":{"rope_type":"linear","factor":8E0},"vocab_size":3,"tie_word_embeddings":true,)"
            R"("attention_bias":false,"mlp_bias":false})");
  std::vector<std::string> names;
  for (const TensorView& tensor : result.model.tensors) {
    names.push_back(tensor.name + " " + std::to_string(tensor.interleaved_rope_heads));
  }
  EXPECT_THAT(names, ::testing::ElementsAre(
                         "model.embed_tokens.weight 0", "model.layers.0.input_layernorm.weight 0",
                         "model.layers.0.mlp.down_proj.weight 0", "model.layers.0.mlp.gate_proj.weight 0",
                         "model.layers.0.mlp.up_proj.weight 0", "model.layers.0.post_attention_layernorm.weight 0",
                         "model.layers.0.self_attn.k_proj.weight 1", "model.layers.0.self_attn.o_proj.weight 0",
                         "model.layers.0.self_attn.q_proj.weight 2", "model.layers.0.self_attn.v_proj.weight 0",
                         "model.norm.weight 0"));
  EXPECT_FALSE(result.model.tokenizer.has_value());
  EXPECT_FALSE(result.model.chat_template.has_value());
}

TEST(GgufModel, KnowsQwen) {
  GgufBuilder b = tiny_tensors(tiny_metadata("qwen3")).zeros("output.weight", {8, 3});
  b.zeros("blk.0.attn_q_norm.weight", {4}).zeros("blk.0.attn_k_norm.weight", {4});
  b.u32("qwen3.attention.key_length", 4).u32("qwen3.attention.value_length", 4);
  const Result three = convert(b);
  ASSERT_EQ(three.message, "accepted");
  EXPECT_EQ(three.model.config.at("architectures").at(0).as_string(), "Qwen3ForCausalLM");
  EXPECT_FALSE(three.model.config.at("tie_word_embeddings").as_bool());
  EXPECT_EQ(three.model.config.at("rope_theta").as_double(), 10000.0);
  for (const TensorView& tensor : three.model.tensors) EXPECT_EQ(tensor.interleaved_rope_heads, 0) << tensor.name;

  const Result two = convert(tiny_tensors(tiny_metadata("qwen2")).zeros("blk.0.attn_q.bias", {8}));
  ASSERT_EQ(two.message, "accepted");
  EXPECT_EQ(two.model.config.at("model_type").as_string(), "qwen2");
  EXPECT_TRUE(two.model.config.at("attention_bias").as_bool());
}

TEST(GgufModel, CarriesTheTokenizerAndTheChatTemplate) {
  GgufBuilder b = tiny_metadata("llama");
  b.string("tokenizer.ggml.model", "gpt2")
      .string("tokenizer.ggml.pre", "smollm")
      .strings("tokenizer.ggml.tokens", {"a", "b", "ab"});
  b.strings("tokenizer.ggml.merges", {"a b"})
      .integers("tokenizer.ggml.token_type", {1, 1, 3})
      .u32("tokenizer.ggml.bos_token_id", 0);
  b.u32("tokenizer.ggml.eos_token_id", 1).u32("tokenizer.ggml.eot_token_id", 2).u32("tokenizer.ggml.eom_token_id", 1);
  b.flag("tokenizer.ggml.add_bos_token", true).string("tokenizer.chat_template", "{{ x }}");
  b.f32("general.sampling.temp", 0.5f).u32("general.sampling.top_k", 20);
  const Result result = convert(tiny_tensors(b));
  ASSERT_EQ(result.message, "accepted");
  ASSERT_TRUE(result.model.tokenizer.has_value());
  const GgufTokenizerData& tokenizer = *result.model.tokenizer;
  EXPECT_EQ(tokenizer.model, "gpt2");
  EXPECT_EQ(tokenizer.pre, "smollm");
  EXPECT_THAT(tokenizer.tokens, ::testing::ElementsAre("a", "b", "ab"));
  EXPECT_THAT(tokenizer.merges, ::testing::ElementsAre("a b"));
  EXPECT_THAT(tokenizer.token_types, ::testing::ElementsAre(1, 1, 3));
  EXPECT_TRUE(tokenizer.scores.empty());
  EXPECT_EQ(tokenizer.eot_id, 2);
  EXPECT_EQ(tokenizer.add_bos, true);
  EXPECT_EQ(tokenizer.add_eos, std::nullopt);
  EXPECT_EQ(result.model.chat_template->as_string(), "{{ x }}");
  EXPECT_EQ(boost::json::serialize(result.model.generation_config),
            R"({"bos_token_id":0,"eos_token_id":[1,2],"temperature":5E-1,"top_k":20})");
  EXPECT_EQ(result.model.config.at("eos_token_id").as_int64(), 1);

  b.strings("tokenizer.chat_templates", {"tool_use"}).string("tokenizer.chat_template.tool_use", "{{ y }}");
  const Result named = convert(tiny_tensors(b));
  ASSERT_EQ(named.message, "accepted");
  EXPECT_EQ(boost::json::serialize(*named.model.chat_template),
            R"([{"name":"default","template":"{{ x }}"},{"name":"tool_use","template":"{{ y }}"}])");
}

TEST(GgufModel, RefusesWhatItDoesNotKnow) {
  EXPECT_EQ(convert(tiny_metadata("gemma3")).message,
            "m.gguf: general.architecture: \"gemma3\" is not supported; accepted: llama, qwen2, qwen3");
  EXPECT_THAT(convert(GgufBuilder()).message, HasSubstr("general.architecture: is missing"));
  EXPECT_THAT(message_with([](GgufBuilder& b) { b.f32("llama.logit_scale", 2.0f); }),
              HasSubstr("m.gguf: llama.logit_scale: a setting that is not known for this architecture"));
  EXPECT_THAT(message_with([](GgufBuilder& b) { b.u32("llama.expert_count", 8); }),
              HasSubstr("llama.expert_count: mixture of experts"));
  EXPECT_EQ(message_with([](GgufBuilder& b) { b.u32("llama.expert_count", 0); }), "accepted");
  EXPECT_THAT(message_with([](GgufBuilder& b) { b.flag("llama.attention.causal", false); }), HasSubstr("not causal"));
  EXPECT_THAT(message_with([](GgufBuilder& b) { b.u32("llama.rope.dimension_count", 2); }),
              HasSubstr("llama.rope.dimension_count: 2 of 4 dimensions of a head are rotated; accepted: all"));
  EXPECT_THAT(message_with([](GgufBuilder& b) { b.u32("llama.attention.value_length", 2); }),
              HasSubstr("llama.attention.value_length: 2 differs"));
  EXPECT_THAT(message_with([](GgufBuilder& b) { b.zeros("blk.0.mystery.weight", {8}); }),
              HasSubstr("m.gguf: tensor \"blk.0.mystery.weight\": is not known for architecture llama"));
  for (const char* name : {"blk.00.attn_norm.weight", "blk.x.attn_norm.weight", "blk.0.attn_norm",
                           "blk..attn_norm.weight", "blk.-1.attn_norm.weight", "blk.0.attn_norm.scale", "blk.", "blk.0",
                           "mystery", "blk.99999999999999999999.attn_norm.weight"}) {
    EXPECT_THAT(message_with([&](GgufBuilder& b) { b.zeros(name, {8}); }), HasSubstr("is not known for architecture"))
        << name;
  }
  EXPECT_THAT(message_with([](GgufBuilder& b) { b.string("llama.rope.scaling.type", "yarn"); }),
              HasSubstr("llama.rope.scaling.factor: is missing for scaling type \"yarn\""));
}

TEST(GgufModel, NamesMissingAndWrongMetadata) {
  EXPECT_EQ(convert(tiny_tensors(GgufBuilder().string("general.architecture", "llama"))).message,
            "m.gguf: llama.embedding_length is missing");
  GgufBuilder b;
  b.string("general.architecture", "llama").string("llama.embedding_length", "eight");
  EXPECT_EQ(convert(tiny_tensors(b)).message,
            "m.gguf: llama.embedding_length: expected an integer from 1 to 16777216, found the string \"eight\"");
  EXPECT_THAT(convert(tiny_metadata("llama")).message, HasSubstr("token_embd.weight: the tensor is missing"));
  EXPECT_THAT(message_with([](GgufBuilder& g) { g.u32("llama.vocab_size", 4); }),
              HasSubstr("llama.vocab_size: 4, but token_embd.weight has 3 rows"));

  GgufBuilder heads;
  heads.string("general.architecture", "llama").u32("llama.block_count", 1).u32("llama.context_length", 64);
  heads.u32("llama.embedding_length", 8)
      .u32("llama.feed_forward_length", 16)
      .f32("llama.attention.layer_norm_rms_epsilon", 0.5f);
  GgufBuilder uniform = heads;
  uniform.integers("llama.attention.head_count", {2}).integers("llama.attention.head_count_kv", {1});
  EXPECT_EQ(convert(tiny_tensors(uniform)).message, "accepted");
  GgufBuilder mixed = heads;
  mixed.integers("llama.attention.head_count", {2, 4});
  EXPECT_THAT(convert(tiny_tensors(mixed)).message,
              HasSubstr("llama.attention.head_count: expected an integer from 1 to 65536, found an array"));
  GgufBuilder odd = heads;
  odd.u32("llama.attention.head_count", 3);
  EXPECT_THAT(convert(tiny_tensors(odd)).message,
              HasSubstr("llama.attention.head_count: 3 does not divide embedding_length 8"));
  GgufBuilder many = heads;
  many.u32("llama.attention.head_count", 8);
  EXPECT_THAT(convert(tiny_tensors(many)).message,
              HasSubstr("tensor \"blk.0.attn_q.weight\": shape [8, 8] cannot be 8 heads"));
}

TEST(GgufModel, RefusesATokenizerThatContradictsItself) {
  const auto with = [](const std::function<void(GgufBuilder&)>& change) {
    return message_with([&](GgufBuilder& b) {
      b.string("tokenizer.ggml.model", "gpt2");
      change(b);
    });
  };
  const std::vector<std::string> three = {"a", "b", "c"};
  EXPECT_EQ(with([&](GgufBuilder& b) { b.strings("tokenizer.ggml.tokens", three); }), "accepted");
  EXPECT_THAT(with([](GgufBuilder&) {}), HasSubstr("tokenizer.ggml.tokens: is missing or empty"));
  EXPECT_THAT(with([](GgufBuilder& b) { b.strings("tokenizer.ggml.tokens", {"a"}); }),
              HasSubstr("tokenizer.ggml.tokens: 1 tokens, but token_embd.weight has 3 rows"));
  EXPECT_THAT(with([](GgufBuilder& b) { b.integers("tokenizer.ggml.tokens", {1}); }),
              HasSubstr("expected an array of strings"));
  EXPECT_THAT(with([](GgufBuilder& b) {
                b.strings("tokenizer.ggml.tokens", {"a", "\xff", "c"});
              }),
              HasSubstr("tokenizer.ggml.tokens: element 1 is not valid UTF-8: \"\\xff\""));
  EXPECT_THAT(with([&](GgufBuilder& b) {
                b.strings("tokenizer.ggml.tokens", three).integers("tokenizer.ggml.token_type", {1});
              }),
              HasSubstr("tokenizer.ggml.token_type: has 1 elements for 3 tokens"));
  EXPECT_THAT(with([&](GgufBuilder& b) {
                b.strings("tokenizer.ggml.tokens", three).integers("tokenizer.ggml.token_type", {1, 1, 9});
              }),
              HasSubstr("the type 9 is not from 0 to 6"));
  EXPECT_THAT(
      with([&](GgufBuilder& b) { b.strings("tokenizer.ggml.tokens", three).u32("tokenizer.ggml.eos_token_id", 3); }),
      HasSubstr("tokenizer.ggml.eos_token_id: the id 3 is outside the vocabulary of 3 tokens"));
  EXPECT_THAT(
      with([&](GgufBuilder& b) { b.strings("tokenizer.ggml.tokens", three).u32("tokenizer.ggml.add_bos_token", 1); }),
      HasSubstr("tokenizer.ggml.add_bos_token: expected a boolean"));
  EXPECT_THAT(message_with([](GgufBuilder& b) { b.u32("tokenizer.chat_template", 1); }),
              HasSubstr("tokenizer.chat_template: expected a string"));
  EXPECT_THAT(message_with([](GgufBuilder& b) { b.strings("tokenizer.chat_templates", {"x"}); }),
              HasSubstr("tokenizer.chat_template.x: is missing"));
}

}  // namespace
}  // namespace sterling::formats
