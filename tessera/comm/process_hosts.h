// On which hosts the processes of an MPI launch run.
#pragma once

#include <string>
#include <vector>

#include "tessera/base/result.h"

namespace tessera::comm {

// Returns the name of each process's host, by the number that the launcher gave the process. All
// processes must call it. Initialises MPI if mpi_world() has not; an error where MPI is not built
// in.
Result<std::vector<std::string>> mpi_process_hosts();

}  // namespace tessera::comm
