#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace sterling {

void check_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "sterling: internal error: check failed: %s (%s:%d)\n", condition, file, line);
  std::abort();
}

}  // namespace sterling
