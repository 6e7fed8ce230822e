// Libraries beside the program, which are loaded when a command needs them.
#pragma once

#include <string>

#include "tessera/base/result.h"

namespace tessera::cli {

struct Library {
  const char* file;           // in the program's folder
  const char* entry;          // a function of C without arguments
  const char* what;           // as messages call it
  const char* how_to_get_it;  // what to run where it is missing
};

// Loads the library, once in a process, and returns the address of its entry. It is never closed: it
// ends what it has started when the process exits. Its symbols are global, because the plug-ins of
// Open MPI look for those of MPI there. Errors, which begin with `command`: there is no such file; it
// cannot be loaded, as a library of another build.
Result<void*> load_library(const Library& library, const std::string& command);

}  // namespace tessera::cli
