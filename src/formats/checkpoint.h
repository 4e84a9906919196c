// A model on disk, whatever its format, in Hugging Face's terms: configuration, tensors, tokenizer files. Input is treated as
// hostile: open() checks headers, names, offsets and sizes of every file, and names file and field of the first fault. It
// reads headers only; weights stay in the file until somebody touches a TensorView's data.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <boost/json.hpp>

#include "base/status.h"
#include "tensor/tensor_view.h"

namespace sterling::formats {

enum class CheckpointFormat { kSafetensors, kGguf, kConfigOnly };

// "safetensors", "gguf", "config-only".
std::string_view checkpoint_format_name(CheckpointFormat format);

// The tokenizer inside a GGUF file, as it stands there.
struct GgufTokenizerData {
  std::string model;                // "gpt2" (byte-level BPE), "llama" (SentencePiece), …
  std::string pre;                  // which pre-tokenizer split, "smollm", "qwen2", "llama-bpe"; may be empty
  std::vector<std::string> tokens;  // by id
  std::vector<std::string> merges;  // "left right", by rank; may be empty
  std::vector<std::int32_t>
      token_types;            // by id, or empty: 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte
  std::vector<float> scores;  // by id, or empty
  std::optional<std::int64_t> bos_id, eos_id, eot_id, eom_id, unknown_id, padding_id;
  std::optional<bool> add_bos, add_eos, add_space_prefix;
};

// Move-only. Thread-safe for reading. Views and pointers that it hands out live as long as it does, also across moves.
class Checkpoint {
 public:
  // `path`: a directory with config.json and safetensors weights (model.safetensors, or shards named by
  // model.safetensors.index.json), a directory with config.json alone, a directory with one .gguf file, or a .gguf file.
  static Expected<Checkpoint> open(const std::filesystem::path& path);

  Checkpoint(Checkpoint&&) noexcept;
  Checkpoint& operator=(Checkpoint&&) noexcept;
  ~Checkpoint();

  const std::string& path() const;
  CheckpointFormat format() const;
  bool weights_present() const { return format() != CheckpointFormat::kConfigOnly; }

  // Fields of config.json; of a GGUF file the same fields made from its metadata (formats/gguf_model.h).
  const boost::json::object& config() const;
  // What to call it in messages: "DIR/config.json", or the GGUF file's path.
  const std::string& config_file() const;
  // Absent files are nullptr. For GGUF, generation_config() holds the end-of-turn ids and sampling hints that the file has.
  const boost::json::object* generation_config() const;
  const boost::json::object* hf_quant_config() const;

  // Sorted by name (byte order). Empty when config-only.
  std::span<const TensorView> tensors() const;
  const TensorView* find(std::string_view name) const;

  // Bytes of tokenizer.json as they are; whoever parses them judges them.
  std::optional<std::string_view> tokenizer_json() const;
  const boost::json::object* tokenizer_config() const;
  const boost::json::object* special_tokens_map() const;
  // chat_template.jinja (a string), or tokenizer_config.json's chat_template (a string, or a list of {name, template}), or
  // chat_template.json's, or GGUF's tokenizer.chat_template; nullptr when there is none.
  const boost::json::value* chat_template() const;
  // nullptr unless the format is GGUF and the file has a tokenizer.
  const GgufTokenizerData* gguf_tokenizer() const;

  // Lets go of the memory that holds this tensor's file pages once its weights have been packed. Reading it again is allowed.
  void release_pages(const TensorView& tensor) const;

 private:
  struct Contents;
  explicit Checkpoint(std::unique_ptr<Contents> contents);
  std::unique_ptr<Contents> contents_;
};

}  // namespace sterling::formats
