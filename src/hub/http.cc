#include "hub/http.h"

#include <algorithm>
#include <cctype>
#include <charconv>

#include <curl/curl.h>

namespace sterling::hub {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMaxHeaderBytes = std::size_t{256} << 10;

// What the callbacks of one transfer share.
struct Transfer {
  const HttpCall& call;
  const HttpOptions& options;
  HttpOutcome& outcome;
  std::size_t header_bytes = 0;
  Clock::time_point last_byte = Clock::now();
  bool stalled = false;
  bool stopped = false;

  bool refuse(Error error) {
    outcome.refusal = std::move(error);
    return false;
  }
};

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front())) != 0) text.remove_prefix(1);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())) != 0) text.remove_suffix(1);
  return text;
}

// One header line. False ends the transfer.
bool take_header(Transfer& transfer, std::string_view line) {
  HttpReply& reply = transfer.outcome.reply;
  transfer.last_byte = Clock::now();
  transfer.header_bytes += line.size();
  if (transfer.header_bytes > kMaxHeaderBytes) {
    return transfer.refuse(make_error(ErrorCode::kCorrupt, "the server sends more than 256 KiB of headers"));
  }
  const std::string_view text = trimmed(line);
  if (text.starts_with("HTTP/")) {  // also after a 100 Continue or a proxy's answer
    reply = {};
    const std::size_t space = text.find(' ');
    if (space != std::string_view::npos) {
      std::from_chars(text.data() + space + 1, text.data() + text.size(), reply.status);
    }
    return true;
  }
  if (text.empty()) {
    if (reply.status < 200 || !transfer.call.on_reply) return true;
    const Status status = transfer.call.on_reply(reply);
    return status.ok() || transfer.refuse(status.error());
  }
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos) return true;
  std::string name(text.substr(0, colon));
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  reply.headers.emplace_back(std::move(name), std::string(trimmed(text.substr(colon + 1))));
  return true;
}

std::size_t header_callback(char* data, std::size_t size, std::size_t count, void* user) {
  return take_header(*static_cast<Transfer*>(user), {data, size * count}) ? size * count : 0;
}

std::size_t body_callback(char* data, std::size_t size, std::size_t count, void* user) {
  auto& transfer = *static_cast<Transfer*>(user);
  transfer.last_byte = Clock::now();
  if (!transfer.call.on_body) return size * count;
  const Status status = transfer.call.on_body({data, size * count});
  return status.ok() || transfer.refuse(status.error()) ? size * count : 0;
}

// libcurl asks about once a second while nothing happens.
int progress_callback(void* user, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  auto& transfer = *static_cast<Transfer*>(user);
  transfer.stopped = transfer.options.stopped && transfer.options.stopped();
  transfer.stalled = Clock::now() - transfer.last_byte > transfer.options.stall_timeout;
  return transfer.stopped || transfer.stalled ? 1 : 0;
}

Transport transport_of(CURLcode code, const Transfer& transfer) {
  if (code == CURLE_OK) return Transport::kOk;
  if (transfer.outcome.refusal) return Transport::kRefused;
  switch (code) {
    case CURLE_ABORTED_BY_CALLBACK: return transfer.stopped ? Transport::kStopped : Transport::kStalled;
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
    case CURLE_SSL_CONNECT_ERROR: return Transport::kUnreachable;
    case CURLE_OPERATION_TIMEDOUT: return Transport::kUnreachable;  // only connecting has a limit of its own
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE: return Transport::kUntrusted;
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_URL_MALFORMAT:
    case CURLE_OUT_OF_MEMORY: return Transport::kImpossible;
    default: return Transport::kCut;
  }
}

}  // namespace

const std::string* HttpReply::header(std::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (key == name) return &value;
  }
  return nullptr;
}

std::optional<std::int64_t> HttpReply::content_length() const {
  const std::string* text = header("content-length");
  std::int64_t value = 0;
  if (text == nullptr) return std::nullopt;
  const auto [end, problem] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (problem != std::errc() || end != text->data() + text->size() || value < 0) return std::nullopt;
  return value;
}

struct HttpSession::Handle {
  CURL* curl = nullptr;
  char problem[CURL_ERROR_SIZE] = {};
};

HttpSession::HttpSession(HttpOptions options) : options_(std::move(options)), handle_(std::make_unique<Handle>()) {
  curl_global_init(CURL_GLOBAL_DEFAULT);  // counted, and thread-safe since libcurl 7.84
  handle_->curl = curl_easy_init();
}

HttpSession::~HttpSession() {
  if (handle_->curl != nullptr) curl_easy_cleanup(handle_->curl);
  curl_global_cleanup();
}

HttpOutcome HttpSession::perform(const HttpCall& call) {
  HttpOutcome outcome;
  CURL* curl = handle_->curl;
  if (curl == nullptr) return {Transport::kImpossible, {}, "libcurl can't start", {}};
  Transfer transfer{call, options_, outcome};
  curl_slist* headers = nullptr;
  for (const std::string& header : call.headers) {
    if (curl_slist* more = curl_slist_append(headers, header.c_str())) headers = more;
  }
  const auto set = [curl](CURLoption option, auto value) { curl_easy_setopt(curl, option, value); };
  curl_easy_reset(curl);  // options, not connections
  handle_->problem[0] = '\0';
  set(CURLOPT_ERRORBUFFER, static_cast<char*>(handle_->problem));
  set(CURLOPT_URL, call.url.c_str());
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_FOLLOWLOCATION, 0L);
  set(CURLOPT_NOBODY, call.head ? 1L : 0L);
  set(CURLOPT_HTTPHEADER, headers);
  set(CURLOPT_USERAGENT, options_.user_agent.c_str());
  // Several connections carry the parallel parts; one multiplexed connection would be slower than they are.
  set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_BUFFERSIZE, 256L << 10);
  set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(options_.connect_timeout.count()));
  set(CURLOPT_NOPROGRESS, 0L);
  set(CURLOPT_XFERINFOFUNCTION, progress_callback);
  set(CURLOPT_XFERINFODATA, static_cast<void*>(&transfer));
  set(CURLOPT_HEADERFUNCTION, header_callback);
  set(CURLOPT_HEADERDATA, static_cast<void*>(&transfer));
  set(CURLOPT_WRITEFUNCTION, body_callback);
  set(CURLOPT_WRITEDATA, static_cast<void*>(&transfer));
  if (!options_.ca_file.empty()) set(CURLOPT_CAINFO, options_.ca_file.c_str());
  const CURLcode code = curl_easy_perform(curl);
  outcome.transport = transport_of(code, transfer);
  if (code != CURLE_OK) outcome.detail = handle_->problem[0] != '\0' ? handle_->problem : curl_easy_strerror(code);
  // Nothing may keep pointers into this frame.
  curl_easy_reset(curl);
  curl_slist_free_all(headers);
  return outcome;
}

}  // namespace sterling::hub
