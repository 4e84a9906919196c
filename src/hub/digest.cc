#include "hub/digest.h"

#include <array>

#include <openssl/evp.h>

#include "base/check.h"
#include "hub/names.h"

namespace sterling::hub {

struct Digest::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  ~State() { EVP_MD_CTX_free(context); }
};

std::string_view hash_name(HashKind kind) {
  return kind == HashKind::kSha256 ? "sha256" : "git blob sha1";
}

std::optional<HashKind> hash_kind(std::string_view blob) {
  if (is_hex(blob, 64)) return HashKind::kSha256;
  if (is_hex(blob, 40)) return HashKind::kGitBlob;
  return std::nullopt;
}

Digest::Digest(HashKind kind, std::int64_t size) : state_(std::make_unique<State>()) {
  STERLING_CHECK(state_->context != nullptr);
  const EVP_MD* method = kind == HashKind::kSha256 ? EVP_sha256() : EVP_sha1();
  STERLING_CHECK(EVP_DigestInit_ex(state_->context, method, nullptr) == 1);
  if (kind == HashKind::kGitBlob) {
    const std::string head = "blob " + std::to_string(size);
    update({head.c_str(), head.size() + 1});  // with its NUL
  }
}

Digest::~Digest() = default;
Digest::Digest(Digest&&) noexcept = default;
Digest& Digest::operator=(Digest&&) noexcept = default;

void Digest::update(std::string_view bytes) {
  STERLING_CHECK(EVP_DigestUpdate(state_->context, bytes.data(), bytes.size()) == 1);
}

std::string Digest::finish() {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::array<unsigned char, EVP_MAX_MD_SIZE> raw;
  unsigned length = 0;
  STERLING_CHECK(EVP_DigestFinal_ex(state_->context, raw.data(), &length) == 1);
  std::string text;
  for (unsigned i = 0; i < length; ++i) text += {kDigits[raw[i] >> 4], kDigits[raw[i] & 15]};
  return text;
}

}  // namespace sterling::hub
