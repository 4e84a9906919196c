// The tokenizer arrays of a GGUF file as plain data: formats/ reads them, text/ makes a tokenizer of them, and neither
// knows the other.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace sterling::text {

// Values of tokenizer.ggml.token_type.
enum class GgufTokenType : int {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,      // special: matched in text, left out by skip_special
  kUserDefined = 4,  // matched in text, an ordinary part of the output
  kUnused = 5,       // padding: never produced by encoding
  kByte = 6,
};

struct GgufVocabulary {
  std::string model;                // tokenizer.ggml.model
  std::string pre;                  // tokenizer.ggml.pre
  std::vector<std::string> tokens;  // tokenizer.ggml.tokens; the index is the id
  std::vector<std::string> merges;  // tokenizer.ggml.merges, "left right"
  std::vector<int> token_types;     // tokenizer.ggml.token_type: empty, or one per token
  std::vector<float> scores;        // tokenizer.ggml.scores: unused by byte-level BPE
  std::optional<std::int32_t> bos_id;
  std::optional<std::int32_t> eos_id;
  std::optional<std::int32_t> unk_id;
  std::optional<std::int32_t> pad_id;
  std::optional<bool> add_bos;  // absent: what the pre-tokeniser's family does
  std::optional<bool> add_eos;
};

}  // namespace sterling::text
