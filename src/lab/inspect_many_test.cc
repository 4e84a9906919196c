// Very many tensors: right counts, and memory that stays bounded. Time is measured by bench/inspect_headers.py.
#include <sys/resource.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <boost/json.hpp>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "formats/test_support.h"
#include "lab/inspect.h"

namespace sterling::lab {
namespace {

namespace json = boost::json;

constexpr int kShards = 240;
constexpr int kLayers = 60;
constexpr int kExperts = 512;

// A shard with a header and a hole for data: its file has the right size and no blocks.
void write_sparse(const std::filesystem::path& path, const std::string& header, std::uint64_t data_size) {
  std::ofstream(path, std::ios::binary) << formats::safetensors_bytes(header, "");
  std::filesystem::resize_file(path, 8 + header.size() + data_size);
}

TEST(InspectManyTensors, CountsThemInBoundedMemory) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's own memory would be measured";
#endif
  const formats::TemporaryFolder folder;
  // No family: nothing is bound, so that zero scales in the holes don't matter. Everything else is counted.
  folder.write("config.json", R"({"architectures": ["ManyForCausalLM"], "model_type": "many", "num_hidden_layers": 60,
    "num_experts": 512, "num_experts_per_tok": 8})");
  json::object map;
  std::int64_t tensors = 0;
  std::int64_t bytes = 0;
  for (int shard = 0; shard < kShards; ++shard) {
    const std::string file = fmt::format("model-{:05}-of-{:05}.safetensors", shard + 1, kShards);
    const int layer = shard / (kShards / kLayers);
    std::string header = "{";
    std::uint64_t offset = 0;
    const auto add = [&](const std::string& name, const char* dtype, const char* shape, std::uint64_t size) {
      header += fmt::format("{}\"{}\":{{\"dtype\":\"{}\",\"shape\":{},\"data_offsets\":[{},{}]}}",
                            offset == 0 ? "" : ",", name, dtype, shape, offset, offset + size);
      offset += size;
      map[name] = file;
      ++tensors;
    };
    const int share = kExperts / (kShards / kLayers);
    const int first = shard % (kShards / kLayers) * share;
    for (int expert = first; expert < first + share; ++expert) {
      for (const char* part : {"gate_proj", "up_proj", "down_proj"}) {
        const std::string module = fmt::format("model.layers.{}.mlp.experts.{}.{}", layer, expert, part);
        add(module + ".weight", "U8", "[32,32]", 1024);
        add(module + ".weight_scale", "F8_E4M3", "[32,4]", 128);
        add(module + ".weight_scale_2", "F32", "[]", 4);
        add(module + ".input_scale", "F32", "[]", 4);
      }
    }
    bytes += static_cast<std::int64_t>(offset);
    write_sparse(folder.path() / file, header + "}", offset);
  }
  folder.write("model.safetensors.index.json", json::serialize(json::object{{"weight_map", std::move(map)}}));

  const auto inspection = inspect(folder.path());
  ASSERT_TRUE(inspection.ok()) << inspection.error().message;
  ASSERT_EQ(tensors, std::int64_t{kLayers} * kExperts * 3 * 4);
  EXPECT_GT(tensors, 368'000);
  ASSERT_EQ(inspection->weights->size(), 1U);
  EXPECT_EQ(inspection->weights->front().format, "nvfp4");
  EXPECT_EQ(inspection->weights->front().tensors, tensors);
  EXPECT_EQ(inspection->weights->front().bytes, bytes);
  EXPECT_EQ(inspection->parameters.total, std::int64_t{kLayers} * kExperts * 3 * 32 * 64);
  EXPECT_EQ(inspection->parameters.active_per_token, std::int64_t{kLayers} * 8 * 3 * 32 * 64);
  rusage usage{};
  ASSERT_EQ(getrusage(RUSAGE_SELF, &usage), 0);
  EXPECT_LT(std::int64_t{usage.ru_maxrss} * 1024, 1'000'000'000);  // of this process, its fixture included
}

}  // namespace
}  // namespace sterling::lab
