#include "hub/client.h"

#include <algorithm>
#include <ctime>
#include <thread>

#include <fmt/format.h>

#include "formats/message.h"
#include "hub/digest.h"

namespace sterling::hub {
namespace {

constexpr int kMaxRedirects = 10;
constexpr int kMaxPages = 10'000;
constexpr std::size_t kMaxBody = std::size_t{64} << 20;

bool is_redirect(int status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

HttpOutcome refused(Error error) {
  HttpOutcome outcome;
  outcome.transport = Transport::kRefused;
  outcome.refusal = std::move(error);
  return outcome;
}

bool is_unknown_method(int status) {
  return status == 405 || status == 501;
}

std::optional<std::int64_t> parse_size(const std::string* text) {
  if (text == nullptr) return std::nullopt;
  HttpReply one;
  one.headers.emplace_back("content-length", *text);
  return one.content_length();
}

// What to do about a door that is shut.
std::string way_in(bool gated, bool has_token, const std::string& page) {
  if (gated && has_token) {
    return fmt::format(
        "this token has no access; if the model is gated, accept its conditions at {}, and give the token "
        "the right to read gated models",
        page);
  }
  if (gated) return fmt::format("access is gated; accept the conditions at {} and set HF_TOKEN", page);
  if (has_token)
    return "the token is not accepted (expired, revoked, or of another hub); check HF_TOKEN or the token file";
  return "the model is private, gated, or does not exist; check its name, or set HF_TOKEN to a token that may read it";
}

}  // namespace

Error stopped_error() {
  return make_error(ErrorCode::kCancelled,
                    "stopped; what has arrived is kept, and the same command goes on from there");
}

Client::Client(ClientOptions options, RepoId repo)
    : options_(std::move(options)),
      repo_(std::move(repo)),
      home_(origin_of(options_.endpoint)),
      next_seed_(options_.seed) {}

HttpOptions Client::http_options() const {
  HttpOptions http = options_.http;
  http.stopped = [this] { return stopped(); };
  return http;
}

Retries Client::retries() {
  return Retries(options_.retry, next_seed_.fetch_add(1));
}

std::string Client::file_url(const std::string& commit, const std::string& path) const {
  return fmt::format("{}/{}/resolve/{}/{}", options_.endpoint, repo_.text(), commit, percent_encode(path, "/"));
}

// A server may send back what it was sent.
std::string Client::redacted(std::string text) const {
  if (options_.token.empty()) return text;
  for (std::size_t at = text.find(options_.token); at != std::string::npos; at = text.find(options_.token, at)) {
    text.replace(at, options_.token.size(), "***");
  }
  return text;
}

bool Client::wait(std::chrono::milliseconds time) const {
  constexpr std::chrono::milliseconds kPiece(50);
  const auto end = std::chrono::steady_clock::now() + time;
  while (!stopped()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
    if (left.count() <= 0) return true;
    std::this_thread::sleep_for(std::min(left, kPiece));
  }
  return false;
}

HttpOutcome Client::send(HttpSession& session, HttpCall call, std::string* final_url,
                         const std::function<bool(const HttpReply&)>& enough) {
  const std::vector<std::string> plain = call.headers;
  for (int hop = 0; hop <= kMaxRedirects; ++hop) {
    while (gate_.remaining().count() > 0) {
      if (!wait(gate_.remaining())) break;
    }
    if (stopped()) {
      HttpOutcome outcome;
      outcome.transport = Transport::kStopped;
      return outcome;
    }
    const std::optional<Origin> origin = origin_of(call.url);
    call.headers = plain;
    call.headers.emplace_back("Accept-Encoding: identity");  // sizes, ranges and hashes are of the plain bytes
    if (!options_.token.empty() && home_ && origin == home_) {
      call.headers.push_back("Authorization: Bearer " + options_.token);
    }
    HttpOutcome outcome = session.perform(call);
    if (final_url != nullptr) *final_url = call.url;
    if (outcome.transport != Transport::kOk || !is_redirect(outcome.reply.status)) return outcome;
    if (enough && enough(outcome.reply)) return outcome;
    const std::string* location = outcome.reply.header("location");
    const auto next = location == nullptr ? std::nullopt : resolve_reference(call.url, *location);
    if (!next) {
      return refused(make_error(ErrorCode::kCorrupt,
                                fmt::format("{} redirects to {}, which is no web address", shown_url(call.url),
                                            location == nullptr ? "nothing" : redacted(formats::quote(*location)))));
    }
    if (origin && origin->scheme == "https" && origin_of(*next)->scheme != "https") {
      return refused(
          make_error(ErrorCode::kPermission,
                     fmt::format("{} redirects from https to {}; refused: what comes from there can be forged",
                                 shown_url(call.url), shown_url(*next))));
    }
    call.url = *next;
  }
  return refused(make_error(ErrorCode::kUnavailable,
                            fmt::format("{}: more than {} redirects", shown_url(call.url), kMaxRedirects)));
}

Error Client::explain(const HttpReply& reply, std::string_view body, const std::string& what) const {
  const auto header = [&](std::string_view name) {
    const std::string* value = reply.header(name);
    return value == nullptr ? std::string() : *value;
  };
  const std::string code = header("x-error-code");
  std::string said = header("x-error-message");
  if (said.empty() && body.size() < 300 && formats::is_valid_utf8(body)) said = std::string(body);
  said = redacted(formats::quote(said));
  if (said == "\"\"") said = "no reason";
  std::string page = shown_url(options_.endpoint);
  page += (page.ends_with('/') ? "" : "/") + repo_.text();
  const std::string head = fmt::format("{}: the hub answers {}", what, reply.status);
  const bool has_token = !options_.token.empty();
  const bool gated = code == "GatedRepo" || (reply.status == 403 && has_token);
  if (gated || reply.status == 401 || reply.status == 403) {
    return make_error(ErrorCode::kPermission, fmt::format("{} ({}): {}", head, said, way_in(gated, has_token, page)),
                      repo_.text());
  }
  switch (reply.status) {
    case 404:
      if (code == "RevisionNotFound") {
        return make_error(ErrorCode::kNotFound,
                          fmt::format("{} ({}): {} has no such branch, tag or commit; {}/tree/main lists them", head,
                                      said, repo_.text(), page),
                          repo_.text());
      }
      return make_error(ErrorCode::kNotFound,
                        fmt::format("{} ({}): no such model, revision or file at {}; check the spelling{}", head, said,
                                    page, has_token ? "" : " (a private model needs HF_TOKEN)"),
                        repo_.text());
    case 416:
      return make_error(ErrorCode::kCorrupt,
                        fmt::format("{} ({}): the file there is shorter than the hub said; try again", head, said));
    case 429:
      return make_error(ErrorCode::kUnavailable,
                        fmt::format("{} ({}): too many requests; wait some minutes, {}or use fewer --jobs", head, said,
                                    has_token ? "" : "set HF_TOKEN (its limit is higher), "));
    default: break;
  }
  if (reply.status >= 500) {
    return make_error(ErrorCode::kUnavailable, fmt::format("{} ({}): its fault, try again later", head, said));
  }
  return make_error(ErrorCode::kUnavailable,
                    fmt::format("{} ({}), which is not an answer of a model hub; check HF_ENDPOINT ({})", head, said,
                                shown_url(options_.endpoint)));
}

std::optional<Error> Client::wait_or_give_up(const HttpOutcome& outcome, std::string_view body, const std::string& what,
                                             Retries& retries) {
  if (outcome.transport == Transport::kStopped || stopped()) return stopped_error();
  if (outcome.transport == Transport::kRefused) return outcome.refusal;
  std::string reason = redacted(outcome.detail);
  Error final_error;
  if (outcome.transport == Transport::kOk) {
    final_error = explain(outcome.reply, body, what);
    if (!is_passing(outcome.reply.status)) return final_error;
    reason = fmt::format("the hub answers {}", outcome.reply.status);
  } else if (outcome.transport == Transport::kUntrusted || outcome.transport == Transport::kImpossible) {
    const char* help =
        outcome.transport == Transport::kUntrusted
            ? "; trusted are the certificates of the system, or those in the file that SSL_CERT_FILE names"
            : "";
    return make_error(ErrorCode::kUnavailable,
                      fmt::format("{}: {} ({}){}", what, reason, shown_url(options_.endpoint), help));
  } else {
    if (outcome.transport == Transport::kStalled) {
      reason = fmt::format("no byte for {} s", static_cast<double>(options_.http.stall_timeout.count()) / 1000.0);
    }
    final_error =
        make_error(ErrorCode::kUnavailable,
                   fmt::format("{}: {} ({}); what has arrived is kept, and the same command goes on from there", what,
                               reason, shown_url(options_.endpoint)));
  }
  const auto wait_time = retries.after_failure();
  if (!wait_time) {
    final_error.message += fmt::format(" (tried {} times)", retries.failures());
    return final_error;
  }
  std::chrono::milliseconds pause = *wait_time;
  if (const auto asked =
          outcome.transport == Transport::kOk ? retry_after(outcome.reply, std::time(nullptr)) : std::nullopt) {
    if (*asked > options_.retry.longest_asked) {
      final_error.message += fmt::format(" (it asks to wait {} s)", asked->count() / 1000);
      return final_error;
    }
    pause = std::max(pause, *asked);
    gate_.close_for(*asked);
  }
  if (options_.log) {
    options_.log(LogLevel::kWarning, fmt::format("{}: {}; trying again in {:.1f} s ({} of {})", what, reason,
                                                 static_cast<double>(pause.count()) / 1000.0, retries.failures() + 1,
                                                 options_.retry.attempts));
  }
  if (!wait(pause)) return stopped_error();
  return std::nullopt;
}

Expected<std::string> Client::get(HttpSession& session, const std::string& url, const std::string& what,
                                  HttpReply* reply) {
  Retries retries = this->retries();
  while (true) {
    std::string body;
    HttpCall call;
    call.url = url;
    call.on_reply = [&](const HttpReply&) {
      body.clear();  // a redirect's
      return Status();
    };
    call.on_body = [&](std::string_view piece) -> Status {
      if (body.size() + piece.size() > kMaxBody) {
        return make_error(ErrorCode::kCorrupt,
                          fmt::format("{}: the answer is larger than {} MiB", what, kMaxBody >> 20));
      }
      body.append(piece);
      return {};
    };
    const HttpOutcome outcome = send(session, std::move(call));
    *reply = outcome.reply;
    if (outcome.transport == Transport::kOk && outcome.reply.status == 200) return body;
    if (auto error = wait_or_give_up(outcome, body, what, retries)) return *error;
  }
}

Expected<RevisionInfo> Client::list(HttpSession& session, const std::string& revision) {
  const std::string api = fmt::format("{}/api/models/{}", options_.endpoint, repo_.text());
  HttpReply reply;
  const std::string what = fmt::format("{}@{}", repo_.text(), revision);
  auto text = get(session, fmt::format("{}/revision/{}", api, percent_encode(revision)), what, &reply);
  if (!text && revision == "main" && reply.status == 404 && reply.header("x-error-code") == nullptr) {
    text = get(session, api, what, &reply);  // a mirror that only knows each model's newest revision
  }
  if (!text) return text.error();
  auto info = parse_revision(*text, shown_url(api));
  if (!info) return info.error();

  std::vector<ListedFile> files;
  std::string url = fmt::format("{}/tree/{}?recursive=true&expand=false", api, info->commit);
  for (int page = 0; page < kMaxPages; ++page) {
    text = get(session, url, what + " (list of files)", &reply);
    if (!text) {
      // A mirror may lack the tree; the names are known, and each file tells its size itself.
      const bool lacks = page == 0 && (reply.status == 404 || is_unknown_method(reply.status));
      if (lacks && text.error().code != ErrorCode::kCancelled) return info;
      return text.error();
    }
    auto entries = parse_tree_page(*text, shown_url(url));
    if (!entries) return entries.error();
    files.insert(files.end(), std::make_move_iterator(entries->begin()), std::make_move_iterator(entries->end()));
    if (files.size() > kMaxFiles) {
      return make_error(ErrorCode::kCorrupt, fmt::format("{}: more than {} files are listed", what, kMaxFiles));
    }
    const std::string* link = reply.header("link");
    const auto next = link == nullptr ? std::nullopt : next_link(*link);
    const auto next_url = next ? resolve_reference(url, *next) : std::nullopt;
    if (!next_url) {
      info->files = std::move(files);
      return info;
    }
    if (*next_url == url)
      return make_error(ErrorCode::kCorrupt, fmt::format("{}: the list of files leads back to itself", what));
    url = *next_url;
  }
  return make_error(ErrorCode::kCorrupt, fmt::format("{}: the list of files has more than {} pages", what, kMaxPages));
}

Expected<FileFacts> Client::head(HttpSession& session, const std::string& commit, const ListedFile& file) {
  const std::string what = fmt::format("{}: {}", repo_.text(), file.path);
  Retries retries = this->retries();
  while (true) {
    // The hub's own answer names the file; whoever stores the bytes may call them by another ETag.
    HttpReply hub;
    const auto enough = [&](const HttpReply& reply) {
      const std::string* location = reply.header("location");
      const auto target = location == nullptr ? std::nullopt : origin_of(*location);
      const bool leaves = target && target != home_;
      const bool names = reply.header("x-linked-etag") != nullptr || (leaves && reply.header("etag") != nullptr);
      if (names && hub.headers.empty()) hub = reply;
      return names && (leaves || file.size || reply.header("x-linked-size") != nullptr);
    };
    std::optional<std::string> moved;
    HttpCall call;
    call.url = file_url(commit, file.path);
    call.head = true;
    call.on_reply = [&](const HttpReply& reply) -> Status {
      if (const std::string* there = reply.header("x-repo-commit")) moved = *there;
      return {};
    };
    const HttpOutcome outcome = send(session, std::move(call), nullptr, enough);
    const bool answered = outcome.transport == Transport::kOk && (outcome.reply.status == 200 || !hub.headers.empty());
    if (!answered && outcome.transport == Transport::kOk && is_unknown_method(outcome.reply.status) && file.size &&
        hash_kind(file.hash)) {
      return FileFacts{file.hash, file.size};  // a plain file server; the list said it all
    }
    if (!answered) {
      if (auto error = wait_or_give_up(outcome, {}, what, retries)) return *error;
      continue;
    }
    if (moved && *moved != commit) {
      return make_error(ErrorCode::kCorrupt, fmt::format("{}: asked for commit {}, the hub answers with {}", what,
                                                         commit, formats::quote(*moved)));
    }
    return facts_of(hub.headers.empty() ? outcome.reply : hub, outcome.reply, file, what);
  }
}

// `named` is the reply that names the blob, `last` the one at the end of the redirects.
Expected<FileFacts> Client::facts_of(const HttpReply& named, const HttpReply& last, const ListedFile& file,
                                     const std::string& what) const {
  const std::string* etag = named.header("x-linked-etag");
  if (etag == nullptr) etag = named.header("etag");
  if (etag == nullptr) {
    return make_error(ErrorCode::kCorrupt,
                      fmt::format("{}: the hub sends no ETag; without it nothing can be checked or stored "
                                  "(HF_ENDPOINT is {})",
                                  what, shown_url(options_.endpoint)));
  }
  auto blob = blob_name(*etag);
  if (!blob) return make_error(ErrorCode::kCorrupt, fmt::format("{}: {}", what, blob.error().message));
  FileFacts facts{std::move(*blob), parse_size(named.header("x-linked-size"))};
  if (!facts.size && last.status == 200) facts.size = last.content_length();
  if (facts.size && file.size && *facts.size != *file.size) {
    return make_error(
        ErrorCode::kCorrupt,
        fmt::format("{}: the hub gives two sizes, {} in its list and {} for the file", what, *file.size, *facts.size));
  }
  if (!facts.size) facts.size = file.size;
  if (facts.size && *facts.size > kMaxFileBytes) {
    return make_error(ErrorCode::kCorrupt,
                      fmt::format("{}: a size of {} bytes; at most {} are accepted", what, *facts.size, kMaxFileBytes));
  }
  return facts;
}

}  // namespace sterling::hub
