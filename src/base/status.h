// Errors as values. Every fallible function below cli/ returns Status or Expected<T>; exceptions do not cross a module
// boundary.
//
// A message is one sentence for the user: it names the file, tensor, JSON path or flag, what was found and what is accepted.
// `where` repeats the place alone ("config.json:hidden_size", "messages[2].role", "--kv-memory") for programs.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace sterling {

// Closed list; cli/ maps it to exit codes, server/ to HTTP codes.
enum class ErrorCode {
  kInvalidArgument,    // the caller's request is wrong: a flag, a field, a value
  kNotFound,           // a file, model, tensor or id that does not exist
  kPermission,         // it exists but may not be read, written or bound
  kUnsupported,        // well formed, but nothing here can do it
  kCorrupt,            // foreign bytes that break their format
  kIo,                 // the operating system failed
  kResourceExhausted,  // memory, pool, queue or limit
  kUnavailable,        // not ready, draining
  kCancelled,
  kDeadlineExceeded,
  kVerification,  // what runs is not what was asked for or declared
  kInternal,      // a broken promise of our own
};

// Stable lower-case name ("invalid_argument", …), as printed in JSON errors.
std::string_view error_code_name(ErrorCode code);

struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;
  std::string where;  // may be empty
};

// A value or an Error. Accessing the wrong one is a programmer's error and aborts.
template <typename T>
class [[nodiscard]] Expected {
 public:
  using value_type = T;
  Expected(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT(google-explicit-constructor)
  Expected(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  T& value() & { return std::get<0>(state_); }
  const T& value() const& { return std::get<0>(state_); }
  // By value: a reference into a temporary would dangle in `for (x : *f())`.
  T value() && { return std::get<0>(std::move(state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T operator*() && { return std::get<0>(std::move(state_)); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  const Error& error() const& { return std::get<1>(state_); }
  Error&& error() && { return std::get<1>(std::move(state_)); }

 private:
  std::variant<T, Error> state_;
};

// Success, or an Error.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Error error) : error_(std::move(error)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return !error_.has_value(); }
  explicit operator bool() const { return ok(); }
  const Error& error() const { return *error_; }

 private:
  std::optional<Error> error_;
};

inline Error make_error(ErrorCode code, std::string message, std::string where = {}) {
  return Error{code, std::move(message), std::move(where)};
}

}  // namespace sterling
