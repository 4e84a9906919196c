#include "text/tokenizer.h"

#include <utility>

#include "text/gguf_tokenizer.h"
#include "text/textkit_call.h"
#include "text/tokenizer_impl.h"

namespace sterling::text {

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::~Tokenizer() = default;

Expected<std::shared_ptr<const Tokenizer>> Tokenizer::from_json(std::string_view json) {
  if (Status ready = textkit_ready(); !ready) return ready.error();
  auto impl = std::make_unique<Impl>();
  TextkitResult result;
  tk_tokenizer_new(textkit_bytes(json), json.size(), &impl->handle, result.result());
  if (!result.ok()) return result.error("tokenizer.json");
  tk_tokenizer_table(impl->handle, &impl->table);
  return std::shared_ptr<const Tokenizer>(new Tokenizer(std::move(impl)));
}

Expected<std::shared_ptr<const Tokenizer>> Tokenizer::from_gguf(const GgufVocabulary& vocabulary) {
  Expected<std::string> json = tokenizer_json_from_gguf(vocabulary);
  if (!json) return json.error();
  Expected<std::shared_ptr<const Tokenizer>> made = from_json(*json);
  if (made) return made;
  Error error = made.error();
  error.message = "the tokenizer in the GGUF file cannot be used: " + error.message;
  error.where = "tokenizer.ggml";
  return error;
}

Expected<std::vector<std::int32_t>> Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  const std::uint32_t flags = (options.add_special_tokens ? std::uint32_t{TK_ADD_SPECIAL} : 0u) |
                              (options.parse_special ? std::uint32_t{TK_PARSE_SPECIAL} : 0u);
  TextkitResult result;
  tk_tokenizer_encode(impl_->handle, textkit_bytes(text), text.size(), flags, result.result());
  if (!result.ok()) return result.error({});
  // Every id is at most 2^22 - 1 (the table's bound), so none changes its value here.
  return std::vector<std::int32_t>(result.raw().ids, result.raw().ids + result.raw().ids_size);
}

Expected<std::string> Tokenizer::decode(std::span<const std::int32_t> ids, bool skip_special) const {
  std::vector<std::uint32_t> present;
  present.reserve(ids.size());
  for (const std::int32_t id : ids) {
    if (has_token(id)) present.push_back(static_cast<std::uint32_t>(id));
  }
  TextkitResult result;
  tk_tokenizer_decode(impl_->handle, present.data(), present.size(), skip_special ? 1 : 0, result.result());
  if (!result.ok()) return result.error({});
  return result.text();
}

std::size_t Tokenizer::vocab_size() const {
  return impl_->table.count;
}
bool Tokenizer::has_token(std::int32_t id) const {
  return (impl_->flags(id) & TK_TOKEN_PRESENT) != 0;
}
bool Tokenizer::is_special(std::int32_t id) const {
  return (impl_->flags(id) & TK_TOKEN_SPECIAL) != 0;
}

std::optional<std::int32_t> Tokenizer::token_to_id(std::string_view token) const {
  const std::int64_t id = tk_tokenizer_token_to_id(impl_->handle, textkit_bytes(token), token.size());
  if (id < 0) return std::nullopt;
  return static_cast<std::int32_t>(id);
}

std::optional<std::string_view> Tokenizer::id_to_token(std::int32_t id) const {
  if (!has_token(id)) return std::nullopt;
  return Impl::slice(impl_->table.token, impl_->table.token_offset, id);
}

std::string_view Tokenizer::token_bytes(std::int32_t id) const {
  if (!has_token(id)) return {};
  return Impl::slice(impl_->table.bytes, impl_->table.bytes_offset, id);
}

}  // namespace sterling::text
