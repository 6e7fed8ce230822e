#include "tessera/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace tessera {

void check_failure(const char* file, int line, const char* condition, const std::string& message) {
  std::fprintf(stderr, "tessera: internal error: %s:%d: %s does not hold: %s\n", file, line,
               condition, message.c_str());
  std::fflush(stderr);
  std::abort();
}

}  // namespace tessera
