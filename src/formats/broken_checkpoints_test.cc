// The faulty checkpoints that lie beside the project in some checkouts (../shared/golden/data/broken), as far as files and
// headers are at fault. Every case has its equivalent in the other tests of this module, so nothing rests on their presence.
#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/checkpoint.h"

namespace sterling::formats {
namespace {

using ::testing::HasSubstr;

struct Broken {
  std::string folder;
  std::string file;     // that the message names
  std::string message;  // part of it
};

const std::vector<Broken>& broken() {
  static const std::vector<Broken> kBroken = {
      {"empty_file", "model.safetensors", "has 0 bytes"},
      {"truncated_length", "model.safetensors", "at least the 8 of its header length"},
      {"truncated_header", "model.safetensors", "is the file truncated?"},
      {"truncated_data", "model.safetensors", "is it truncated?"},
      {"trailing_bytes", "model.safetensors", "16 bytes follow the last tensor"},
      {"header_length_2_60", "model.safetensors", "the header length is 1152921504606846976"},
      {"header_length_short", "model.safetensors", "the JSON ends in the middle"},
      {"header_not_json", "model.safetensors", "not valid JSON"},
      {"header_not_utf8", "model.safetensors", "not valid UTF-8"},
      {"header_is_array", "model.safetensors", "expected a JSON object of tensors, found an array"},
      {"deep_header", "model.safetensors", "array"},
      {"duplicate_keys", "model.safetensors", "tensor \"lm_head.weight\": appears twice"},
      {"duplicate_keys_equal", "model.safetensors", "tensor \"lm_head.weight\": appears twice"},
      {"overlapping_offsets", "model.safetensors", "overlap tensor \"lm_head.weight\""},
      {"offsets_beyond_file", "model.safetensors", "tensor \"model.norm.weight\""},
      {"offsets_reversed", "model.safetensors",
       "tensor \"model.layers.0.input_layernorm.weight\": data_offsets are reversed"},
      {"offsets_negative", "model.safetensors", "data_offsets has the negative number -2"},
      {"offsets_gap", "model.safetensors", "tensor \"model.embed_tokens.weight\": 32 unused bytes"},
      {"missing_offsets", "model.safetensors",
       "tensor \"model.layers.0.input_layernorm.weight\": data_offsets is missing"},
      {"unknown_dtype", "model.safetensors",
       "tensor \"model.layers.0.input_layernorm.weight\": unknown dtype \"F7_E3M3\""},
      {"size_mismatch", "model.safetensors", "tensor \"model.layers.0.input_layernorm.weight\": shape"},
      {"shape_overflow", "model.safetensors", "shape [8589934592, 8589934592] is too large"},
      {"negative_dimension", "model.safetensors", "shape has the negative extent -1"},
      {"index_missing_shard", "model.safetensors.index.json", "is missing"},
      {"index_wrong_tensor", "model.safetensors.index.json", "is not in its shard"},
      {"index_path_escape", "model.safetensors.index.json", "lies in \"../intact/model.safetensors\""},
      {"config_truncated", "config.json", "the JSON ends in the middle"},
  };
  return kBroken;
}

TEST(BrokenCheckpoints, AreRefusedWithFileAndReason) {
  const std::filesystem::path root = std::string(STERLING_SOURCE_DIR) + "/../shared/golden/data/broken";
  if (!std::filesystem::exists(root)) GTEST_SKIP() << root << " is not here";
  for (const Broken& expected : broken()) {
    const auto opened = Checkpoint::open(root / expected.folder);
    ASSERT_FALSE(opened.ok()) << expected.folder;
    RecordProperty(expected.folder, opened.error().message);
    EXPECT_THAT(opened.error().message, HasSubstr("/" + expected.folder + "/" + expected.file)) << expected.folder;
    EXPECT_THAT(opened.error().message, HasSubstr(expected.message)) << expected.folder;
  }
  // Faults of content are not this layer's: everything else opens, so that the layers above can name them.
  for (const auto& entry : std::filesystem::directory_iterator(root)) {
    if (!entry.is_directory()) continue;
    const std::string name = entry.path().filename().string();
    if (std::any_of(broken().begin(), broken().end(), [&](const Broken& b) { return b.folder == name; })) continue;
    const auto opened = Checkpoint::open(entry.path());
    EXPECT_TRUE(opened.ok()) << name << ": " << opened.error().message;
  }
}

}  // namespace
}  // namespace sterling::formats
