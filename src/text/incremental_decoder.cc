// Streaming decode from the per-token table: it follows the two decoders that rust/textkit/src/decoding.rs accepts, step
// by step, without calling into the library.
#include <utility>

#include "base/utf8.h"
#include "text/tokenizer.h"
#include "text/tokenizer_impl.h"

namespace sterling::text {

IncrementalDecoder::IncrementalDecoder(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special)
    : tokenizer_(std::move(tokenizer)), skip_special_(skip_special), to_strip_(tokenizer_->impl_->table.strip_count) {}

std::string IncrementalDecoder::push(std::int32_t id) {
  std::string out;
  const std::uint8_t flags = tokenizer_->impl_->flags(id);
  if ((flags & TK_TOKEN_PRESENT) == 0) return out;
  if (skip_special_ && (flags & TK_TOKEN_SPECIAL) != 0) return out;
  const std::string_view bytes = tokenizer_->token_bytes(id);

  if (tokenizer_->impl_->table.decoding == TK_DECODE_BYTE_FALLBACK) {
    if ((flags & TK_TOKEN_BYTE) != 0) {
      held_ += bytes;
      return out;
    }
    end_byte_run(out);
    emit(bytes, out);
    return out;
  }

  held_ += bytes;
  std::string_view rest = held_;
  while (!rest.empty()) {
    const Utf8Step step = utf8_step(rest);
    if (step.kind == Utf8Step::kIncomplete) break;
    out += step.kind == Utf8Step::kCharacter ? rest.substr(0, step.size) : kReplacement;
    rest.remove_prefix(step.size);
  }
  held_.erase(0, held_.size() - rest.size());
  return out;
}

std::string IncrementalDecoder::flush() {
  std::string out;
  if (tokenizer_->impl_->table.decoding == TK_DECODE_BYTE_FALLBACK) {
    end_byte_run(out);
  } else if (!held_.empty()) {
    out = kReplacement;  // what is held is one incomplete character
  }
  held_.clear();
  to_strip_ = tokenizer_->impl_->table.strip_count;
  return out;
}

void IncrementalDecoder::end_byte_run(std::string& out) {
  if (held_.empty()) return;
  if (utf8_valid_prefix(held_) == held_.size()) {
    emit(held_, out);
  } else {
    for (std::size_t i = 0; i < held_.size(); ++i) emit(kReplacement, out);
  }
  held_.clear();
}

void IncrementalDecoder::emit(std::string_view text, std::string& out) {
  while (to_strip_ > 0 && !text.empty()) {
    const std::size_t size = utf8_step(text).size;
    if (text.substr(0, size) != tokenizer_->impl_->strip()) {
      to_strip_ = 0;
      break;
    }
    text.remove_prefix(size);
    --to_strip_;
  }
  out += text;
}

}  // namespace sterling::text
