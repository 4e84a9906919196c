// The hash that a blob's name promises.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace sterling::hub {

enum class HashKind {
  kSha256,   // 64 hexadecimal digits: of the bytes (large files)
  kGitBlob,  // 40: SHA-1 of "blob SIZE\0" and the bytes, as git names a file
};

std::string_view hash_name(HashKind kind);  // "sha256", "git blob sha1"

// What a blob's name (hub/names.h) says about its bytes; nothing when it is no hash.
std::optional<HashKind> hash_kind(std::string_view blob);

// Streaming. `size` is part of what git hashes.
class Digest {
 public:
  Digest(HashKind kind, std::int64_t size);
  ~Digest();
  Digest(Digest&&) noexcept;
  Digest& operator=(Digest&&) noexcept;

  void update(std::string_view bytes);
  std::string finish();  // lower-case hexadecimal; once

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace sterling::hub
