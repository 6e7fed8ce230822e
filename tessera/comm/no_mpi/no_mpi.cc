// Stands in for mpi/ where MPI is not built in.
#include "tessera/comm/communicator.h"

namespace tessera::comm {

bool mpi_available() { return false; }
bool mpi_launched() { return false; }
Result<std::unique_ptr<Communicator>> mpi_world(const Options&) {
  return invalid_input(
      "this program is built without MPI; install an MPI (scripts/setup does) and configure with "
      "-DTESSERA_USE_MPI=ON");
}
void mpi_install_fault_handler() {}

}  // namespace tessera::comm
