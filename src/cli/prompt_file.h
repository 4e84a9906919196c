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

#include "base/status.h"
#include "formats/checkpoint.h"

namespace sterling::cli {

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

// Errors name file and line: a line that is no such object, ids beyond the vocabulary, text without a tokenizer, messages without a chat
// template, a file that holds nothing.
Expected<PromptFile> read_prompts(const std::string& path, const formats::Checkpoint& checkpoint,
                                  const PromptLimits& limits);

}  // namespace sterling::cli
