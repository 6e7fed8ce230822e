// One process that is started, watched and waited for.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "tessera/base/result.h"

namespace tessera {

struct Ended {
  int exit_code = 0;     // of a process that ended by itself
  int signal = 0;        // that ended it; 0: none
  std::string error;     // the last line "tessera: ..." of its standard error, without that word
  double seconds = 0;    // that it ran
  bool stopped = false;  // this process was told to end (SIGINT, SIGTERM) and passed that on
  bool timed_out = false;
};

// Runs `words` (program and arguments; the program is looked up in PATH) and waits for its end. Its
// standard output and standard error go to those of this process; the latter is also read for
// `error`. While it runs, SIGINT and SIGTERM of this process are passed on to it and do not end
// this process. After the time `limit` the process is killed; zero means never. Only one call may
// run at a time in a process. Errors: invalid input if the program cannot be started.
Result<Ended> run_process(const std::vector<std::string>& words,
                          std::chrono::milliseconds limit = std::chrono::milliseconds::zero(),
                          bool quiet = false);

// Returns the file that a shell would start for this name; "" if there is none.
std::string find_program(const std::string& name);

}  // namespace tessera
