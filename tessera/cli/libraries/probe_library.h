// tessera probe, from the point where its options have been read. It needs a communicator, which
// the program does not contain, so it is in a library of its own, libtessera_probe.so, with the
// module `comm` and the folder with_probe/. The library of the runtime has a communicator, too, but
// also libtorch, which takes longer to load than a small network to measure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/base/result.h"

namespace tessera::cli {

struct ProbeCommand {
  std::string out;                // cluster file to write; empty: none
  std::vector<std::string> from;  // files that describe the network
  std::string hosts, like;
  double seconds = 30, timeout_s = 20;
  std::string bytes = "8 GB";
  int64_t seed = 1;
  bool json = false;
};
Result<int> run_probe(const ProbeCommand& options);

}  // namespace tessera::cli

// Defined only in the library, not in the program. Returns a pointer to a function like run_probe().
extern "C" void* tessera_probe_command();
