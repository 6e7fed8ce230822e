// Starts a process and waits for its end.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "tessera/base/result.h"

namespace tessera {

// How a process ended.
struct Ended {
  int exit_code = 0;  // if the process ended by itself
  int signal = 0;     // the signal that ended the process; 0: none
  // The text of the last line of its standard error that begins with "tessera: ", without that
  // word.
  std::string error;
  double seconds = 0;  // how long it ran
  // Whether this process was told to end (SIGINT, SIGTERM) and passed the signal on.
  bool stopped = false;
  bool timed_out = false;
};

// Runs a program and waits for its end. `words` are the program, which is looked up in PATH, and
// its arguments. The program's standard output and standard error go to those of this process. Its
// standard error is also searched for Ended::error, and with `quiet` it is not passed on. While the
// program runs, SIGINT and SIGTERM are passed on to it and do not end this process. The program is
// killed when it has run for `limit`; with zero it may run for ever. A process may run only one
// such call at a time. Errors: invalid input if the program cannot be started.
Result<Ended> run_process(const std::vector<std::string>& words,
                          std::chrono::milliseconds limit = std::chrono::milliseconds::zero(),
                          bool quiet = false);

// Returns the file that a shell would start for this name; "" if there is none.
std::string find_program(const std::string& name);

}  // namespace tessera
