// Who may ask. Pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace sterling::server {

// Whether an Authorization header ("Bearer KEY") carries one of the keys. The time taken depends on lengths and the number of keys,
// not on where a wrong key starts to differ.
bool is_authorized(std::string_view authorization, const std::vector<std::string>& keys);

// A browser says where the page that sends a request comes from. Pages of other origins are refused: CORS is closed, and with it
// the requests that browsers send without asking first. Programs send no Origin.
bool is_foreign_origin(std::string_view origin, std::string_view host);

}  // namespace sterling::server
