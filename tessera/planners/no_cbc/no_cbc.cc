// Stands in for cbc/ where CBC's header was not found.
#include "tessera/planners/published/one_hot_cbc.h"

namespace tessera::published {

bool cbc_available() { return false; }

Result<std::optional<OneHotAnswer>> solve_one_hot_by_cbc(const OneHotProblem& /*problem*/) {
  return invalid_input(
      "this program is built without CBC; install Debian's coinor-libcbc-dev (scripts/setup does) "
      "and configure with -DTESSERA_USE_CBC=ON");
}

}  // namespace tessera::published
