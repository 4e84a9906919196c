// The little of URLs that a hub client needs. Pure functions, thread-safe.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace sterling::hub {

// Percent-encodes all but letters, digits, "-._~" and the characters of `keep`.
std::string percent_encode(std::string_view text, std::string_view keep = {});

struct Origin {
  std::string scheme;  // lower case
  std::string host;    // lower case
  std::string port;    // never empty: the scheme's own when none is written
  bool operator==(const Origin&) const = default;
};

// Nothing for what is no http or https URL with a host.
std::optional<Origin> origin_of(const std::string& url);

// Where a Location or Link header leads that came from `base`. Nothing when the result is no http or https URL.
std::optional<std::string> resolve_reference(const std::string& base, const std::string& reference);

// For messages: scheme, host, port and path. What may be secret (a user's name and password, the query of a signed URL) is left out.
std::string shown_url(const std::string& url);

// The URL of rel="next" in a Link header.
std::optional<std::string> next_link(std::string_view header);

}  // namespace sterling::hub
