// What loading refuses, and how it says so: configuration, tensor names, shapes, types and contents. The checkpoint is a two-layer
// llama written here; each case breaks one thing.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <boost/json.hpp>
#include <gtest/gtest.h>

#include "backend/cpu/cpu_backend.h"
#include "base/float_types.h"
#include "formats/checkpoint.h"
#include "formats/test_support.h"
#include "kernels/dispatch.h"
#include "model/model.h"
#include "platform/thread_pool.h"

namespace sterling::model {
namespace {

struct Tensor {
  std::string dtype = "BF16";
  std::vector<std::int64_t> shape;
  std::string data;
};

using Tensors = std::map<std::string, Tensor>;

Tensor bf16_tensor(std::vector<std::int64_t> shape) {
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) count *= extent;
  Tensor tensor{"BF16", std::move(shape), {}};
  for (std::int64_t i = 0; i < count; ++i) {
    tensor.data += formats::little_endian(to_bf16(static_cast<float>(i % 13 - 6) / 16.0F).bits);
  }
  return tensor;
}

Tensors intact_tensors() {
  Tensors t;
  t["model.embed_tokens.weight"] = bf16_tensor({48, 16});
  t["model.norm.weight"] = bf16_tensor({16});
  t["lm_head.weight"] = bf16_tensor({48, 16});
  for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
    t[layer + "input_layernorm.weight"] = bf16_tensor({16});
    t[layer + "post_attention_layernorm.weight"] = bf16_tensor({16});
    t[layer + "self_attn.q_proj.weight"] = bf16_tensor({16, 16});
    t[layer + "self_attn.k_proj.weight"] = bf16_tensor({8, 16});
    t[layer + "self_attn.v_proj.weight"] = bf16_tensor({8, 16});
    t[layer + "self_attn.o_proj.weight"] = bf16_tensor({16, 16});
    t[layer + "mlp.gate_proj.weight"] = bf16_tensor({32, 16});
    t[layer + "mlp.up_proj.weight"] = bf16_tensor({32, 16});
    t[layer + "mlp.down_proj.weight"] = bf16_tensor({16, 32});
  }
  return t;
}

boost::json::object intact_config() {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"model_type", "llama"},
          {"hidden_size", 16},
          {"intermediate_size", 32},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 2},
          {"num_key_value_heads", 1},
          {"head_dim", 8},
          {"vocab_size", 48},
          {"max_position_embeddings", 128},
          {"rms_norm_eps", 1e-6},
          {"hidden_act", "silu"},
          {"tie_word_embeddings", false},
          {"rope_theta", 10000.0},
          {"torch_dtype", "bfloat16"},
          {"eos_token_id", 47}};
}

std::string serialize(const Tensors& tensors) {
  boost::json::object header;
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    boost::json::array shape(tensor.shape.begin(), tensor.shape.end());
    header[name] = boost::json::object{{"dtype", tensor.dtype},
                                       {"shape", std::move(shape)},
                                       {"data_offsets", {data.size(), data.size() + tensor.data.size()}}};
    data += tensor.data;
  }
  return formats::safetensors_bytes(boost::json::serialize(header), data);
}

struct Case {
  const char* name;
  std::function<void(boost::json::object&, Tensors&)> damage;
  std::vector<const char*> says;  // all of these stand in the message
  ErrorCode code;
  bool found_without_weights = true;  // check() sees it too
};

std::unique_ptr<platform::ThreadPool> make_pool() {
  platform::ThreadPool::Options options;
  options.threads = 2;
  return std::move(*platform::ThreadPool::create(options));
}

class Loading : public testing::Test {
 protected:
  Expected<std::unique_ptr<Model>> load(const std::filesystem::path& path) {
    auto checkpoint = formats::Checkpoint::open(path);
    if (!checkpoint) return checkpoint.error();
    backend_ = backend::make_cpu_backend({backend::Compute::kBf16, *kernels::select("scalar"), pool_.get()});
    return Model::load(*checkpoint, *backend_, {});
  }

  std::unique_ptr<platform::ThreadPool> pool_ = make_pool();
  std::unique_ptr<backend::Backend> backend_;
};

void put_bf16(Tensor& tensor, std::size_t index, std::uint16_t bits) {
  std::memcpy(tensor.data.data() + index * 2, &bits, 2);
}

std::vector<Case> cases() {
  const std::string up = "model.layers.0.mlp.up_proj.weight";
  return {
      {"missing tensor",
       [up](auto&, Tensors& t) { t.erase(up); },
       {"model.layers.0.mlp.up_proj.weight", "missing", "[32, 16]"},
       ErrorCode::kCorrupt},
      {"missing head",
       [](auto&, Tensors& t) { t.erase("lm_head.weight"); },
       {"lm_head.weight", "missing"},
       ErrorCode::kCorrupt},
      {"extra tensor",
       [](auto&, Tensors& t) {
         t["model.layers.0.mlp.mystery.weight"] = bf16_tensor({2, 2});
       },
       {"mystery", "used by no part"},
       ErrorCode::kCorrupt},
      {"extra layer",
       [](auto&, Tensors& t) {
         t["model.layers.2.self_attn.q_proj.weight"] = bf16_tensor({16, 16});
       },
       {"model.layers.2.self_attn.q_proj.weight"},
       ErrorCode::kCorrupt},
      {"wrong shape",
       [up](auto&, Tensors& t) {
         t[up] = bf16_tensor({31, 16});
       },
       {"up_proj", "[31, 16]", "[32, 16]"},
       ErrorCode::kCorrupt},
      {"wrong rank",
       [](auto&, Tensors& t) {
         t["model.norm.weight"] = bf16_tensor({1, 16});
       },
       {"model.norm.weight", "[1, 16]", "[16]"},
       ErrorCode::kCorrupt},
      {"wrong kind",
       [up](auto&, Tensors& t) {
         t[up] = Tensor{"U8", {32, 16}, std::string(512, '\1')};
       },
       {"up_proj.weight", "U8", "up_proj.weight_scale is not there"},
       ErrorCode::kCorrupt},
      {"bias where none belongs",
       [](auto&, Tensors& t) { t["model.layers.0.self_attn.q_proj.bias"] = bf16_tensor({16}); },
       {"q_proj.bias"},
       ErrorCode::kCorrupt},
      {"NaN",
       [up](auto&, Tensors& t) { put_bf16(t[up], 3 * 16 + 5, 0x7fc0); },
       {"up_proj", "[3, 5]", "NaN"},
       ErrorCode::kCorrupt,
       false},
      {"infinity in a norm",
       [](auto&, Tensors& t) { put_bf16(t["model.norm.weight"], 2, 0x7f80); },
       {"model.norm.weight", "infinity"},
       ErrorCode::kCorrupt,
       false},
      {"NaN in the table",
       [](auto&, Tensors& t) { put_bf16(t["model.embed_tokens.weight"], 47 * 16 + 1, 0xffc0); },
       {"embed_tokens", "[47, 1]"},
       ErrorCode::kCorrupt,
       false},
      {"vocabulary", [](auto& c, Tensors&) { c["vocab_size"] = 80; }, {"[48, 16]", "[80, 16]"}, ErrorCode::kCorrupt},
      {"KV heads",
       [](auto& c, Tensors&) { c["num_key_value_heads"] = 3; },
       {"num_key_value_heads", "3", "num_attention_heads"},
       ErrorCode::kCorrupt},
      {"architecture",
       [](auto& c, Tensors&) { c["architectures"] = {"NoSuchForCausalLM"}; },
       {"NoSuchForCausalLM", "LlamaForCausalLM"},
       ErrorCode::kUnsupported},
      {"missing field",
       [](auto& c, Tensors&) { c.erase("hidden_size"); },
       {"hidden_size", "missing"},
       ErrorCode::kCorrupt},
      {"wrong type",
       [](auto& c, Tensors&) { c["num_hidden_layers"] = "two"; },
       {"num_hidden_layers", "two"},
       ErrorCode::kCorrupt},
      {"huge",
       [](auto& c, Tensors&) { c["num_hidden_layers"] = std::int64_t{1} << 40; },
       {"num_hidden_layers", "1099511627776"},
       ErrorCode::kCorrupt},
      {"rope",
       [](auto& c, Tensors&) {
         c["rope_parameters"] = {{"rope_type", "spiral"}, {"rope_theta", 1e4}};
       },
       {"rope_type", "spiral", "llama3"},
       ErrorCode::kUnsupported},
      {"activation",
       [](auto& c, Tensors&) { c["hidden_act"] = "gelu"; },
       {"hidden_act", "gelu", "silu"},
       ErrorCode::kUnsupported},
      {"attention bias",
       [](auto& c, Tensors&) { c["attention_bias"] = true; },
       {"attention_bias"},
       ErrorCode::kUnsupported},
      {"sliding window",
       [](auto& c, Tensors&) { c["sliding_window"] = 64; },
       {"sliding_window", "64"},
       ErrorCode::kUnsupported},
      {"unknown setting",
       [](auto& c, Tensors&) { c["attn_logit_softcapping"] = 50.0; },
       {"attn_logit_softcapping"},
       ErrorCode::kUnsupported},
  };
}

TEST_F(Loading, TheIntactOneLoads) {
  const formats::TemporaryFolder folder;
  folder.write("config.json", boost::json::serialize(intact_config()));
  folder.write("model.safetensors", serialize(intact_tensors()));
  const auto model = load(folder.path());
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_EQ((*model)->spec().layer_count(), 2);
}

TEST_F(Loading, EachFaultIsNamed) {
  for (const Case& c : cases()) {
    const formats::TemporaryFolder folder;
    boost::json::object config = intact_config();
    Tensors tensors = intact_tensors();
    c.damage(config, tensors);
    folder.write("config.json", boost::json::serialize(config));
    folder.write("model.safetensors", serialize(tensors));
    const auto model = load(folder.path());
    ASSERT_FALSE(model.ok()) << c.name;
    EXPECT_EQ(model.error().code, c.code) << c.name << ": " << model.error().message;
    for (const char* part : c.says)
      EXPECT_NE(model.error().message.find(part), std::string::npos) << c.name << ": " << model.error().message;
    const auto checkpoint = formats::Checkpoint::open(folder.path());
    ASSERT_TRUE(checkpoint.ok()) << c.name;
    EXPECT_EQ(check(*checkpoint).ok(), !c.found_without_weights) << c.name;
  }
}

TEST_F(Loading, SettingsThatAreOffAreHarmless) {
  const formats::TemporaryFolder folder;
  boost::json::object config = intact_config();
  config["sliding_window"] = nullptr;
  config["some_new_feature"] = false;
  folder.write("config.json", boost::json::serialize(config));
  folder.write("model.safetensors", serialize(intact_tensors()));
  const auto model = load(folder.path());
  EXPECT_TRUE(model.ok()) << model.error().message;
}

TEST_F(Loading, SharedBrokenCheckpointsAreRefused) {
  const std::filesystem::path root = std::filesystem::path(STERLING_SOURCE_DIR) / "../shared/golden/data/broken";
  if (!std::filesystem::exists(root))
    GTEST_SKIP() << "no shared golden data beside the project; the cases above are the project's own";
  // What may load: nothing is wrong, or only with wishes that are not obeyed; or the configuration contradicts the tensors, which decide
  // (inspect and the start-up log show the contradiction).
  const std::vector<std::string> loadable = {
      "intact",           "announced_but_bf16", "ignored_but_quantised", "kv_configs_disagree",
      "kv_fp8_no_scales", "kv_scale_half",      "kv_scale_one"};
  for (const auto& entry : std::filesystem::directory_iterator(root)) {
    if (!entry.is_directory()) continue;
    const std::string name = entry.path().filename().string();
    const auto model = load(entry.path());
    const bool expected = std::find(loadable.begin(), loadable.end(), name) != loadable.end();
    EXPECT_EQ(model.ok(), expected) << name << ": " << (model.ok() ? "loaded" : model.error().message);
    if (model.ok()) continue;
    EXPECT_GT(model.error().message.size(), 20U) << name;
  }
}

}  // namespace
}  // namespace sterling::model
