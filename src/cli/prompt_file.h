// Prompts for commands that run a model over text: a JSONL file, or plain text.
//
//   JSONL, one object per line, one of:  {"tokens": [1, 2]}   {"text": "…"}   {"prompt": "…"}   {"messages": [{"role", "content"}]}
//   anything else: one text, cut into pieces of at most `context` tokens
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/json.hpp>

#include "base/status.h"
#include "formats/checkpoint.h"

namespace sterling::cli {

// A prompt as the file has it.
struct RawPrompt {
  std::string where;          // file and line
  boost::json::array tokens;  // ids, unchecked; empty: none
  std::optional<std::string> text;
  boost::json::array messages;  // empty: none
};
struct RawPromptFile {
  std::vector<RawPrompt> prompts;  // not empty
  bool plain = false;              // one text, not JSONL
  std::string sha256;              // of the file
};
// Errors name file and line: a line that is no such object, a file that holds nothing.
Expected<RawPromptFile> read_raw_prompts(const std::string& path);

struct PromptFile {
  std::vector<std::vector<std::int32_t>> prompts;  // none is empty
  std::int64_t tokens = 0;
  std::int64_t cut = 0;  // prompts that were longer than `context` and lost their end
  std::string sha256;    // of the file
};

struct PromptLimits {
  std::int64_t context = 0;     // tokens per prompt at most; longer ones of a JSONL file are cut and counted
  std::int64_t max_tokens = 0;  // of all together; 0: no limit. The rest is left out
  std::int64_t vocab_size = 0;
};

// Errors as above, and: ids beyond the vocabulary, text without a tokenizer, messages without a chat template.
Expected<PromptFile> read_prompts(const std::string& path, const formats::Checkpoint& checkpoint,
                                  const PromptLimits& limits);

}  // namespace sterling::cli
