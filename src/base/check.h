// STERLING_CHECK(condition): a broken invariant of our own ends the process with file and line. It must be unreachable from
// user input, model files and the environment; those get a Status.
#pragma once

namespace sterling {

[[noreturn]] void check_failed(const char* condition, const char* file, int line);

}  // namespace sterling

#define STERLING_CHECK(condition) \
  (static_cast<bool>(condition) ? void(0) : ::sterling::check_failed(#condition, __FILE__, __LINE__))
