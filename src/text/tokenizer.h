// Text to token ids and back, with the ids of the Hugging Face `tokenizers` library, which does the work.
//
// A Tokenizer is immutable and shared; every member may be called from any number of threads at once. Encoding a long
// text takes time (about a megabyte per second): keep it off an I/O thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/gguf_vocabulary.h"

namespace sterling::text {

struct EncodeOptions {
  // The file's post-processor may add BOS and the like. Chat templates write them themselves: off for rendered chats.
  bool add_special_tokens = true;
  // "<|im_end|>" in the text becomes that token; off: it is ordinary text. Tokens that the file adds without marking them
  // special ("<think>") are matched in both cases.
  bool parse_special = true;
};

class Tokenizer {
 public:
  // From the bytes of a tokenizer.json. Truncation and padding of the file are not applied. kCorrupt: not such a file;
  // kUnsupported: a decoder that is neither byte level nor byte fallback.
  static Expected<std::shared_ptr<const Tokenizer>> from_json(std::string_view json);

  // From the arrays of a GGUF file. kUnsupported names the models and pre-tokenisers that are accepted.
  static Expected<std::shared_ptr<const Tokenizer>> from_gguf(const GgufVocabulary& vocabulary);

  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // kInvalidArgument when the text is not UTF-8.
  Expected<std::vector<std::int32_t>> encode(std::string_view text, const EncodeOptions& options = {}) const;

  // Bytes that are not UTF-8 become U+FFFD; ids without a token (negative, padding of a model's vocabulary) add nothing.
  Expected<std::string> decode(std::span<const std::int32_t> ids, bool skip_special = false) const;

  // The highest id + 1. A model's logits may be wider (padded); there may be holes below.
  std::size_t vocab_size() const;

  // Whether the id has a token.
  bool has_token(std::int32_t id) const;
  bool is_special(std::int32_t id) const;

  // The exact string of the vocabulary ("Ġthe"), not text.
  std::optional<std::int32_t> token_to_id(std::string_view token) const;
  std::optional<std::string_view> id_to_token(std::int32_t id) const;

  // The bytes that the token adds to the output, before anything is replaced: half a character may be among them. Empty
  // for an id without a token. Valid as long as the tokenizer.
  std::string_view token_bytes(std::int32_t id) const;

 private:
  friend class IncrementalDecoder;
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Decodes one sequence token by token. What push() returned so far plus flush() equals decode() of the ids so far, and no
// push() ever ends inside a UTF-8 character. The work of a push does not depend on what came before. Not thread-safe; one
// per sequence.
class IncrementalDecoder {
 public:
  explicit IncrementalDecoder(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special = false);

  // The text that is final with this token; often empty while a character is incomplete. With a byte-fallback vocabulary
  // it stays empty until a run of byte tokens has ended, because one bad byte changes how the whole run reads.
  std::string push(std::int32_t id);

  // What is still held back, as decode() would show it at the end of the ids. The decoder is then as new.
  std::string flush();

 private:
  void end_byte_run(std::string& out);
  void emit(std::string_view text, std::string& out);

  std::shared_ptr<const Tokenizer> tokenizer_;
  bool skip_special_;
  std::string held_;        // an incomplete character, or the current run of fallback bytes
  std::uint32_t to_strip_;  // leading characters of the text still to drop
};

}  // namespace sterling::text
