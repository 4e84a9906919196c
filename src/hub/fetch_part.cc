#include "hub/fetch_part.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include <fmt/format.h>

#include "formats/message.h"

namespace sterling::hub {
namespace {

struct ContentRange {
  std::int64_t begin = 0;
  std::optional<std::int64_t> size;  // of the whole file
};

// "bytes 100-199/1000", "bytes 100-199/*", "bytes */1000" (begin -1).
std::optional<ContentRange> parse_content_range(std::string_view text) {
  if (!text.starts_with("bytes ")) return std::nullopt;
  text.remove_prefix(6);
  const auto number = [](std::string_view digits) -> std::optional<std::int64_t> {
    std::int64_t value = 0;
    const auto [end, problem] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (problem != std::errc() || end != digits.data() + digits.size() || value < 0) return std::nullopt;
    return value;
  };
  const std::size_t slash = text.find('/');
  if (slash == std::string_view::npos) return std::nullopt;
  ContentRange range;
  if (text.substr(slash + 1) != "*") {
    range.size = number(text.substr(slash + 1));
    if (!range.size) return std::nullopt;
  }
  if (text.substr(0, slash) == "*") {
    range.begin = -1;
    return range;
  }
  const auto begin = number(text.substr(0, std::min(slash, text.find('-'))));
  if (!begin) return std::nullopt;
  range.begin = *begin;
  return range;
}

// One request for what is missing of a part.
class Attempt {
 public:
  Attempt(BlobDownload& download, Part& part, const std::string& what)
      : download_(download), part_(part), what_(what) {}

  HttpOutcome run(Client& client, HttpSession& session, const std::string& url, std::string* final_url) {
    HttpCall call;
    call.url = url;
    // A file that is asked for from its beginning to its end needs no range; some servers answer that from a cache only.
    if (download_.ranges() && (part_.position() > 0 || part_.end != download_.wanted().size)) {
      call.headers.push_back(part_.end ? fmt::format("Range: bytes={}-{}", part_.position(), *part_.end - 1)
                                       : fmt::format("Range: bytes={}-", part_.position()));
    }
    call.on_reply = [this](const HttpReply& reply) { return judge(reply); };
    call.on_body = [this](std::string_view piece) { return take(piece); };
    return client.send(session, std::move(call), final_url);
  }

  bool ranges_refused() const { return ranges_refused_; }
  const std::string& error_body() const { return error_body_; }

 private:
  Status judge(const HttpReply& reply) {
    good_ = reply.status == 200 || reply.status == 206;
    skip_ = 0;
    error_body_.clear();
    if (!good_) return {};
    if (const std::string* encoding = reply.header("content-encoding");
        encoding != nullptr && *encoding != "identity") {
      return corrupt(
          fmt::format("the server compresses it ({}) although plain bytes were asked for", formats::quote(*encoding)));
    }
    const std::optional<std::int64_t> size = download_.wanted().size;
    if (reply.status == 206) {
      const std::string* text = reply.header("content-range");
      const auto range = text == nullptr ? std::nullopt : parse_content_range(*text);
      if (!range || range->begin != part_.position()) {
        return corrupt(fmt::format("asked for bytes from {}, the server sends the range {}", part_.position(),
                                   text == nullptr ? "nothing" : formats::quote(*text)));
      }
      return size && range->size && *range->size != *size ? wrong_size(*range->size, *size) : Status();
    }
    const auto length = reply.content_length();
    if (size && length && *length != *size) return wrong_size(*length, *size);
    if (part_.end != size) {  // one part of several, and the whole file comes
      ranges_refused_ = true;
      return make_error(ErrorCode::kUnsupported, "no ranges");
    }
    skip_ = part_.position();
    return {};
  }

  Status take(std::string_view piece) {
    if (!good_) {
      constexpr std::size_t kMost = 1024;
      error_body_.append(piece.substr(0, std::min(piece.size(), kMost - std::min(kMost, error_body_.size()))));
      return {};
    }
    if (skip_ > 0) {
      const auto less = std::min(skip_, static_cast<std::int64_t>(piece.size()));
      skip_ -= less;
      piece.remove_prefix(static_cast<std::size_t>(less));
    }
    if (part_.end && static_cast<std::int64_t>(piece.size()) > *part_.end - part_.position()) {
      return corrupt(
          fmt::format("the server sends more than the {} bytes that were asked for", *part_.end - part_.begin));
    }
    return piece.empty() ? Status() : download_.receive(part_, piece);
  }

  Status corrupt(const std::string& fault) const {
    return make_error(ErrorCode::kCorrupt, fmt::format("{}: {}", what_, fault), what_);
  }
  Status wrong_size(std::int64_t found, std::int64_t expected) const {
    return corrupt(fmt::format("the server has {} bytes for it, the hub says {}", found, expected));
  }

  BlobDownload& download_;
  Part& part_;
  const std::string& what_;
  bool good_ = false;
  bool ranges_refused_ = false;
  std::int64_t skip_ = 0;  // bytes of a whole file that are there already
  std::string error_body_;
};

// 416 where the size was never told: there is nothing after what we have, if the server's size says so.
bool is_at_end(const HttpReply& reply, const Part& part) {
  if (reply.status != 416 || part.end) return false;
  const std::string* text = reply.header("content-range");
  const auto range = text == nullptr ? std::nullopt : parse_content_range(*text);
  return range && range->size && *range->size == part.position();
}

}  // namespace

Expected<PartResult> fetch_part(Client& client, HttpSession& session, BlobDownload& download, Part& part,
                                const std::string& url, const std::string& what) {
  constexpr std::int64_t kProgress = 16 << 10;  // less than this between two failures is none
  Retries retries = client.retries();
  std::int64_t last = part.position();
  while (true) {
    if (part.dropped) return PartResult::kDropped;
    if (part.end && part.position() == *part.end) return PartResult::kArrived;
    Attempt attempt(download, part, what);
    const std::string known = download.location();
    std::string final_url;
    HttpOutcome outcome = attempt.run(client, session, known.empty() ? url : known, &final_url);
    if (part.dropped) return PartResult::kDropped;
    if (attempt.ranges_refused()) {
      download.give_up_ranges();
      return PartResult::kDropped;
    }
    const int status = outcome.reply.status;
    if (outcome.transport == Transport::kOk && (status == 200 || status == 206)) {
      download.set_location(final_url);
      if (!part.end || part.position() == *part.end) return PartResult::kArrived;
      outcome.transport = Transport::kCut;
      outcome.detail = fmt::format("the server ended after {} of {} bytes", part.position(), *part.end);
    } else if (outcome.transport == Transport::kOk && is_at_end(outcome.reply, part)) {
      return PartResult::kArrived;
    } else if (outcome.transport == Transport::kOk && !known.empty() &&
               (status == 400 || (status >= 401 && status <= 410))) {
      // Signed addresses expire. The hub gives a new one.
      download.set_location({});
      if (known != url) continue;
    }
    if (part.position() - last >= kProgress) retries.progressed();
    last = part.position();
    if (auto error = client.wait_or_give_up(outcome, attempt.error_body(), what, retries)) return *error;
    // Wherever it was, it may be the place that is broken.
    if (outcome.transport != Transport::kOk) download.set_location({});
  }
}

}  // namespace sterling::hub
