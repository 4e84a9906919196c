#include "hub/retry.h"

#include <algorithm>
#include <charconv>

#include <curl/curl.h>

namespace sterling::hub {

bool is_passing(int status) {
  if (status == 501 || status == 505) return false;  // what can't be done now can't be done in a second
  return status == 408 || status == 429 || status >= 500;
}

std::optional<std::chrono::milliseconds> retry_after(const HttpReply& reply, std::int64_t unix_now) {
  const std::string* text = reply.header("retry-after");
  if (text == nullptr) return std::nullopt;
  constexpr std::int64_t kMost = 366 * 86400;
  std::int64_t seconds = 0;
  const auto [end, problem] = std::from_chars(text->data(), text->data() + text->size(), seconds);
  if (problem != std::errc() || end != text->data() + text->size()) {
    const std::int64_t then = curl_getdate(text->c_str(), nullptr);
    if (then < 0) return std::nullopt;
    const std::string* date = reply.header("date");
    const std::int64_t there = date == nullptr ? -1 : curl_getdate(date->c_str(), nullptr);
    seconds = then - (there < 0 ? unix_now : there);
  }
  return std::chrono::milliseconds(std::clamp<std::int64_t>(seconds, 0, kMost) * 1000);
}

std::optional<std::chrono::milliseconds> Retries::after_failure() {
  ++failures_;
  if (failures_ >= policy_.attempts) return std::nullopt;
  const int doublings = std::min(failures_ - 1, 20);
  const auto wait = std::min(policy_.first_wait * (std::int64_t{1} << doublings), policy_.longest_wait);
  // Workers that failed together must not come back together: between half of the wait and all of it (splitmix64).
  random_ += 0x9E3779B97F4A7C15u;
  std::uint64_t mixed = (random_ ^ (random_ >> 30)) * 0xBF58476D1CE4E5B9u;
  mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBu;
  const auto half = static_cast<std::uint64_t>(wait.count() / 2);
  return wait - std::chrono::milliseconds(half == 0 ? 0 : (mixed >> 11) % (half + 1));
}

void Gate::close_for(std::chrono::milliseconds time) {
  const std::lock_guard lock(mutex_);
  open_at_ = std::max(open_at_, std::chrono::steady_clock::now() + time);
}

std::chrono::milliseconds Gate::remaining() const {
  const std::lock_guard lock(mutex_);
  const auto left = open_at_ - std::chrono::steady_clock::now();
  return std::max(std::chrono::milliseconds(0), std::chrono::ceil<std::chrono::milliseconds>(left));
}

}  // namespace sterling::hub
