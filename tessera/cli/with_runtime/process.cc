#include <unistd.h>

#include <cstdlib>

#include "tessera/cli/run_commands.h"

namespace tessera::cli {

// The kernel library's OpenMP threads spin while they wait. On a machine that does anything else
// beside, a spinning thread keeps the one it waits for from running: a step was seen to take 10
// times as long. OpenMP reads the policy when it is loaded, before main().
void prepare_process(char** argv) {
  if (std::getenv("OMP_WAIT_POLICY") != nullptr) return;
  if (::setenv("OMP_WAIT_POLICY", "PASSIVE", 1) != 0) return;
  ::execv("/proc/self/exe", argv);  // returns only if that is not possible: then go on as we are
}

}  // namespace tessera::cli
