// Loads libraries from the program's folder when a command needs them. A program may have a library
// linked into it, as the Python package has that of planning; then nothing is loaded.
#pragma once

#include <string>

#include "tessera/base/result.h"

namespace tessera::cli {

struct Library {
  const char* file;           // its name in the program's folder
  const char* entry;          // name of a C function without arguments
  void* linked;               // that function, if it is linked into this program; else null
  const char* what;           // how messages call the library
  const char* how_to_get_it;  // the command that builds it, for the message if it is missing
};

// Loads the library, at most once in a process, and returns the address of its entry. The library
// stays loaded until the process exits; it then ends what it has started. Its symbols are made
// global, because the plug-ins of Open MPI look for MPI's symbols among the global ones. Errors,
// which begin with `command`: the file does not exist; it cannot be loaded, for example because it
// is of another build.
Result<void*> load_library(const Library& library, const std::string& command);

}  // namespace tessera::cli
