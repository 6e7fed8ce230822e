// Asks another program something: runs it and returns what it prints.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "tessera/base/result.h"

namespace tessera::share {

struct ProgramAnswer {
  int exit_code = 0;        // 128 + the signal for a program that a signal ended
  std::string out, errors;  // standard output and standard error
};

// Runs a program without a shell, and waits for its end. `words` are the program, which is looked up in
// PATH, and its arguments. It has no standard input, and ends with this process. Errors: it cannot be
// started (invalid input). Faults: it has not ended within `limit`; it is killed then.
Result<ProgramAnswer> ask_program(const std::vector<std::string>& words,
                                  std::chrono::milliseconds limit);

}  // namespace tessera::share
