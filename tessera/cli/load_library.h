// Loads libraries that lie beside the program when a command needs them.
#pragma once

#include <string>

#include "tessera/base/result.h"

namespace tessera::cli {

struct Library {
  const char* file;           // in the program's folder
  const char* entry;          // a function of C without arguments
  const char* what;           // the library's name in messages
  const char* how_to_get_it;  // the command to run where the library is missing
};

// Loads the library, once in a process, and returns the address of its entry. The library is never
// closed: it ends what it has started when the process exits. Its symbols are global, because the
// plug-ins of Open MPI look for those of MPI there. Errors, which begin with `command`: there is no
// such file; the file cannot be loaded, for example because it is of another build.
Result<void*> load_library(const Library& library, const std::string& command);

}  // namespace tessera::cli
