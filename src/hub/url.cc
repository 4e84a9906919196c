#include "hub/url.h"

#include <algorithm>
#include <cctype>
#include <memory>

#include <curl/curl.h>

#include "formats/message.h"

namespace sterling::hub {
namespace {

struct UrlHandle {
  UrlHandle() : handle(curl_url(), curl_url_cleanup) {}
  bool set(const std::string& url) {
    return handle && curl_url_set(handle.get(), CURLUPART_URL, url.c_str(), 0) == CURLUE_OK;
  }
  std::string get(CURLUPart part, unsigned flags = 0) const {
    char* text = nullptr;
    if (curl_url_get(handle.get(), part, &text, flags) != CURLUE_OK) return {};
    std::string out(text);
    curl_free(text);
    return out;
  }
  std::unique_ptr<CURLU, void (*)(CURLU*)> handle;
};

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

bool is_web(const std::string& scheme) {
  return scheme == "http" || scheme == "https";
}

}  // namespace

std::string percent_encode(std::string_view text, std::string_view keep) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       std::string_view("-._~").find(c) != std::string_view::npos ||
                       keep.find(c) != std::string_view::npos;
    if (plain) {
      out.push_back(c);
    } else {
      out += {'%', kDigits[byte >> 4], kDigits[byte & 15]};
    }
  }
  return out;
}

std::optional<Origin> origin_of(const std::string& url) {
  UrlHandle parsed;
  if (url.find("://") == std::string::npos || !parsed.set(url)) return std::nullopt;
  Origin origin{lower(parsed.get(CURLUPART_SCHEME)), lower(parsed.get(CURLUPART_HOST)),
                parsed.get(CURLUPART_PORT, CURLU_DEFAULT_PORT)};
  if (!is_web(origin.scheme) || origin.host.empty()) return std::nullopt;
  return origin;
}

std::optional<std::string> resolve_reference(const std::string& base, const std::string& reference) {
  UrlHandle parsed;
  if (reference.empty() || !parsed.set(base)) return std::nullopt;
  // Setting a URL over another one resolves it as a reference (RFC 3986).
  if (curl_url_set(parsed.handle.get(), CURLUPART_URL, reference.c_str(), 0) != CURLUE_OK) return std::nullopt;
  curl_url_set(parsed.handle.get(), CURLUPART_FRAGMENT, nullptr, 0);
  if (!is_web(lower(parsed.get(CURLUPART_SCHEME))) || parsed.get(CURLUPART_HOST).empty()) return std::nullopt;
  return parsed.get(CURLUPART_URL);
}

std::string shown_url(const std::string& url) {
  UrlHandle parsed;
  if (!parsed.set(url)) return "(a URL that can't be read)";
  for (const CURLUPart secret : {CURLUPART_USER, CURLUPART_PASSWORD, CURLUPART_QUERY, CURLUPART_FRAGMENT}) {
    curl_url_set(parsed.handle.get(), secret, nullptr, 0);
  }
  const std::string quoted = formats::quote(parsed.get(CURLUPART_URL));  // a hub's Location may hold anything
  return quoted.size() < 2 ? quoted : quoted.substr(1, quoted.size() - 2);
}

std::optional<std::string> next_link(std::string_view header) {
  // <URL>; rel="next", <URL>; rel="last"
  while (true) {
    const std::size_t open = header.find('<');
    const std::size_t close = open == std::string_view::npos ? open : header.find('>', open);
    if (close == std::string_view::npos) return std::nullopt;
    const std::string_view url = header.substr(open + 1, close - open - 1);
    header.remove_prefix(close + 1);
    const std::string_view parameters = header.substr(0, header.find('<'));
    if (parameters.find("rel=\"next\"") != std::string_view::npos ||
        parameters.find("rel=next") != std::string_view::npos) {
      return std::string(url);
    }
  }
}

}  // namespace sterling::hub
