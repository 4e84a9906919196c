// Experts in a checkpoint: both layouts load to the same model, what is missing or misshapen is named, and the published configurations
// read. The checkpoints are the project's golden ones, edited here.
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <boost/json.hpp>
#include <gtest/gtest.h>

#include "backend/cpu/cpu_backend.h"
#include "formats/checkpoint.h"
#include "formats/test_support.h"
#include "kernels/dispatch.h"
#include "model/model.h"
#include "platform/thread_pool.h"

namespace sterling::model {
namespace {

struct Tensor {
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::string data;
};
using Tensors = std::map<std::string, Tensor>;

Tensors read_tensors(const formats::Checkpoint& checkpoint) {
  Tensors out;
  for (const TensorView& view : checkpoint.tensors()) {
    out[view.name] = {std::string(dtype_name(view.dtype)), view.shape,
                      std::string(reinterpret_cast<const char*>(view.data.data()), view.data.size())};
  }
  return out;
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

class Experts : public testing::Test {
 protected:
  void SetUp() override {
    platform::ThreadPool::Options options;
    options.threads = 2;
    pool_ = *platform::ThreadPool::create(options);
  }

  void open(const std::string& family) {
    const std::string path = std::string(STERLING_SOURCE_DIR) + "/tests/golden/" + family + "/checkpoint";
    auto checkpoint = formats::Checkpoint::open(path);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
    tensors_ = read_tensors(*checkpoint);
    config_ = checkpoint->config();
  }

  void write(const formats::TemporaryFolder& folder) const {
    folder.write("config.json", boost::json::serialize(config_));
    folder.write("model.safetensors", serialize(tensors_));
  }

  // Logits of a short text's last token.
  std::vector<float> logits() {
    const formats::TemporaryFolder folder;
    write(folder);
    auto checkpoint = formats::Checkpoint::open(folder.path());
    EXPECT_TRUE(checkpoint.ok());
    auto backend = backend::make_cpu_backend({backend::Compute::kBf16, *kernels::select("scalar"), pool_.get()});
    auto model = Model::load(*checkpoint, *backend, {});
    if (!model) {
      ADD_FAILURE() << model.error().message;
      return {};
    }
    EXPECT_TRUE((*model)
                    ->configure({.kv_blocks = 2,
                                 .state_slots = 1,
                                 .max_batch_tokens = 16,
                                 .max_batch_slices = 1,
                                 .max_sequence_tokens = 16})
                    .ok());
    const std::vector<std::int32_t> tokens{3, 14, 15, 92, 6, 5, 35};
    const std::vector<std::int32_t> blocks{1, 0};
    const std::int32_t last = 6;
    SequenceSlice slice;
    slice.tokens = tokens;
    slice.block_table = blocks;
    slice.state_slot = 0;
    slice.logit_rows = std::span(&last, 1);
    std::vector<float> out(static_cast<std::size_t>((*model)->spec().vocab_size));
    EXPECT_TRUE((*model)->forward(BatchView{std::span(&slice, 1)}, out).ok());
    return out;
  }

  // The faults that an inspection lists.
  std::vector<WeightBinder::Problem> problems() const {
    const formats::TemporaryFolder folder;
    write(folder);
    auto checkpoint = formats::Checkpoint::open(folder.path());
    EXPECT_TRUE(checkpoint.ok());
    const Examination examination = examine(*checkpoint);
    return examination.problems;
  }

  Tensors tensors_;
  boost::json::object config_;
  std::unique_ptr<platform::ThreadPool> pool_;
};

// experts.gate_up_proj and experts.down_proj → one tensor per expert and part.
Tensors split(const Tensors& fused) {
  Tensors out;
  for (const auto& [name, tensor] : fused) {
    const std::size_t dot = name.rfind('.');
    const std::string stem = name.substr(0, dot);
    if (!stem.ends_with(".experts")) {
      out[name] = tensor;
      continue;
    }
    const bool down = name.ends_with("down_proj");
    const std::size_t bytes = tensor.data.size() / static_cast<std::size_t>(tensor.shape[0]);
    for (std::int64_t e = 0; e < tensor.shape[0]; ++e) {
      const std::string one = tensor.data.substr(static_cast<std::size_t>(e) * bytes, bytes);
      const std::string module = stem + "." + std::to_string(e) + ".";
      if (down) {
        out[module + "down_proj.weight"] = {tensor.dtype, {tensor.shape[1], tensor.shape[2]}, one};
        continue;
      }
      const std::vector<std::int64_t> shape{tensor.shape[1] / 2, tensor.shape[2]};
      out[module + "gate_proj.weight"] = {tensor.dtype, shape, one.substr(0, bytes / 2)};
      out[module + "up_proj.weight"] = {tensor.dtype, shape, one.substr(bytes / 2)};
    }
  }
  return out;
}

TEST_F(Experts, BothLayoutsAreTheSameModel) {
  open("qwen3_5_moe");
  const std::vector<float> fused = logits();
  tensors_ = split(tensors_);
  ASSERT_TRUE(tensors_.contains("model.language_model.layers.0.mlp.experts.0.gate_proj.weight"));
  ASSERT_TRUE(tensors_.contains("mtp.layers.0.mlp.experts.0.gate_proj.weight"));
  EXPECT_EQ(logits(), fused);
}

TEST_F(Experts, FaultsAreNamed) {
  struct Case {
    const char* family;
    std::function<void(Tensors&)> damage;
    const char* code;
    const char* where;
    const char* says;
  };
  const std::vector<Case> cases = {
      {"qwen3_moe", [](Tensors& t) { t.erase("model.layers.0.mlp.experts.7.up_proj.weight"); }, "missing_tensor",
       "model.layers.0.mlp.experts.7.up_proj.weight", "[27, 50]"},
      {"qwen3_moe", [](Tensors& t) { t.erase("model.layers.2.mlp.gate.weight"); }, "missing_tensor",
       "model.layers.2.mlp.gate.weight", "[11, 50]"},
      {"qwen3_moe",
       [](Tensors& t) {
         auto& one = t["model.layers.0.mlp.experts.3.down_proj.weight"];
         std::swap(one.shape[0], one.shape[1]);
       },
       "wrong_shape", "model.layers.0.mlp.experts.3.down_proj.weight", "[27, 50]"},
      {"qwen3_moe",
       [](Tensors& t) {
         t["model.layers.0.mlp.experts.11.up_proj.weight"] = t["model.layers.0.mlp.experts.0.up_proj.weight"];
       },
       "unused_tensor", "model.layers.0.mlp.experts.11.up_proj.weight", "used by no part"},
      {"qwen3_next", [](Tensors& t) { t.erase("model.layers.0.linear_attn.in_proj_qkvz.weight"); }, "missing_tensor",
       "model.layers.0.linear_attn.in_proj_qkvz.weight", "missing"},
      {"qwen3_next", [](Tensors& t) { t.erase("model.layers.1.mlp.shared_expert_gate.weight"); }, "missing_tensor",
       "model.layers.1.mlp.shared_expert_gate.weight", "[1, 58]"},
      {"qwen3_5_moe", [](Tensors& t) { t.erase("model.language_model.layers.1.mlp.experts.down_proj"); },
       "missing_tensor", "model.language_model.layers.1.mlp.experts.down_proj", "[7, 54, 23]"},
      {"qwen3_5_moe",
       [](Tensors& t) {
         auto& all = t["model.language_model.layers.1.mlp.experts.gate_up_proj"];
         all.shape = {all.shape[1], all.shape[0], all.shape[2]};
       },
       "wrong_shape", "model.language_model.layers.1.mlp.experts.gate_up_proj", "[7, 46, 54]"},
  };
  for (const Case& c : cases) {
    open(c.family);
    c.damage(tensors_);
    bool found = false;
    for (const WeightBinder::Problem& problem : problems()) {
      if (problem.code != c.code || problem.error.where != c.where) continue;
      found = problem.error.message.find(c.says) != std::string::npos;
    }
    EXPECT_TRUE(found) << c.code << " " << c.where;
  }
}

TEST_F(Experts, AnExpertsNanIsNamed) {
  open("qwen3_5_moe");
  tensors_["model.language_model.layers.0.mlp.experts.gate_up_proj"].data[1] = '\x7f';
  tensors_["model.language_model.layers.0.mlp.experts.gate_up_proj"].data[0] = '\xc0';
  const formats::TemporaryFolder folder;
  write(folder);
  auto checkpoint = formats::Checkpoint::open(folder.path());
  auto backend = backend::make_cpu_backend({backend::Compute::kBf16, *kernels::select("scalar"), pool_.get()});
  const auto model = Model::load(*checkpoint, *backend, {});
  ASSERT_FALSE(model.ok());
  EXPECT_NE(model.error().message.find("experts.gate_up_proj[0]"), std::string::npos) << model.error().message;
}

TEST_F(Experts, SettingsThatCannotBeObeyedAreRefused) {
  struct Case {
    const char* family;
    const char* key;
    boost::json::value value;
  };
  for (const Case& c : std::vector<Case>{{"qwen3_moe", "num_experts_per_tok", 12},
                                         {"qwen3_moe", "moe_intermediate_size", 0},
                                         {"qwen3_moe", "attention_bias", true},
                                         {"qwen3_moe", "use_expert_bias", true},
                                         {"qwen3_moe", "n_group", 4},
                                         {"qwen3_5_moe_text", "mlp_only_layers", boost::json::array{1}},
                                         {"qwen3_5_moe_text", "norm_topk_prob", false}}) {
    open(c.family);
    config_[c.key] = c.value;
    const auto found = problems();
    ASSERT_FALSE(found.empty()) << c.key;
    EXPECT_NE(found[0].error.message.find(c.key), std::string::npos) << found[0].error.message;
  }
}

TEST_F(Experts, MtpExpertsAreCountedAndKeptOut) {
  open("qwen3_5_moe");
  const formats::TemporaryFolder folder;
  write(folder);
  const auto result = check(*formats::Checkpoint::open(folder.path()));
  ASSERT_TRUE(result.ok()) << result.error().message;
  bool found = false;
  for (const WeightBinder::Skipped& skipped : result->skipped) {
    if (skipped.what.find("MTP") == std::string::npos) continue;
    EXPECT_EQ(skipped.tensors, 19);  // as in published files
    found = true;
  }
  EXPECT_TRUE(found);
}

// Tensor counts of the per-expert layout by arithmetic, e.g. 48 layers of 8 + router + 3 * 128 tensors, and three at the ends (the
// published index of Qwen3-30B-A3B lists these 18867).
TEST(PublishedConfigurations, ListTheirTensors) {
  const std::filesystem::path root = std::filesystem::path(STERLING_SOURCE_DIR) / "../shared/data/model-configs";
  if (!std::filesystem::exists(root)) GTEST_SKIP() << "no published configurations beside the project";
  const auto hybrid = [](std::size_t full, std::size_t linear, std::size_t experts) {
    const std::size_t mlp = 1 + 3 * experts + 3 + 1;
    return full * (2 + 6 + mlp) + linear * (2 + 9 + mlp) + 3;
  };
  const std::map<std::string, std::size_t> expected = {{"Qwen--Qwen3-30B-A3B", 48 * (8 + 1 + 3 * 128) + 3},
                                                       {"nvidia--Qwen3-235B-A22B-NVFP4", 94 * (8 + 1 + 3 * 128) + 3},
                                                       {"Qwen--Qwen3.5-35B-A3B", hybrid(10, 30, 256)},
                                                       {"Qwen--Qwen3.5-397B-A17B", hybrid(15, 45, 512)},
                                                       {"nvidia--Qwen3.5-397B-A17B-NVFP4", hybrid(15, 45, 512)}};
  for (const auto& [name, count] : expected) {
    std::ifstream file(root / name / "config.json");
    std::stringstream text;
    text << file.rdbuf();
    const auto list = list_tensors(boost::json::parse(text.str()).as_object(), "config.json");
    ASSERT_TRUE(list.ok()) << name << ": " << list.error().message;
    std::set<std::string> names;
    for (const WeightBinder::Wanted& wanted : *list) names.insert(wanted.name);
    EXPECT_EQ(names.size(), count) << name;
  }
}

}  // namespace
}  // namespace sterling::model
