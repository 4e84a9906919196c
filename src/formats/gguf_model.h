// A GGUF file seen as a Hugging Face checkpoint: GGUF's metadata turned into the fields of config.json and
// generation_config.json, its tensor names into Hugging Face's. Architectures: llama, qwen2, qwen3.
//
// What differs from a file that Hugging Face wrote:
// - Norm epsilon and RoPE base were stored as FP32 and are that FP32 value.
// - llama: the rows of Q and K are stored for interleaved RoPE; TensorView::interleaved_rope_heads says so and quant/decode.h
//   puts them back.
// - llama3's RoPE scaling is not in the metadata: the converter stores its effect, one factor per rotated pair by which the
//   frequency is to be divided, as the tensor "rope_freqs.weight" [head_dim / 2] F32. It is passed on under that name, and
//   config() has no rope_scaling.
// - tie_word_embeddings is true when there is no output.weight.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include <boost/json.hpp>

#include "base/status.h"
#include "formats/checkpoint.h"
#include "formats/gguf.h"
#include "tensor/tensor_view.h"

namespace sterling::formats {

struct GgufModel {
  boost::json::object config;
  boost::json::object generation_config;
  std::vector<TensorView> tensors;  // Hugging Face's names, sorted
  std::optional<GgufTokenizerData> tokenizer;
  std::optional<boost::json::value> chat_template;  // a string, or a list of {name, template}
};

// `file` opens the messages. kUnsupported: another architecture, or a setting or tensor of a kind that is not known (a value
// that could change the arithmetic is never passed over). kCorrupt: missing or contradicting metadata.
Expected<GgufModel> gguf_model(const GgufContents& contents, std::string_view file);

// The tokenizer alone (formats/gguf_tokenizer.cc).
Expected<std::optional<GgufTokenizerData>> gguf_tokenizer(const GgufMetadata& metadata, std::string_view file);

}  // namespace sterling::formats
