// Patterns of --include and --exclude, with the meaning that huggingface_hub gives them. Pure functions, thread-safe.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace sterling::hub {

// Python's fnmatchcase: * any text (slashes too), ? one character, [abc] [a-z] [!abc] one of a set; everything else itself. Characters are
// Unicode code points.
bool matches(std::string_view pattern, std::string_view text);

// In when one of `include` matches (or there is none) and none of `exclude` does. A pattern that ends in '/' means all below it.
bool selected(std::string_view path, std::span<const std::string> include, std::span<const std::string> exclude);

}  // namespace sterling::hub
