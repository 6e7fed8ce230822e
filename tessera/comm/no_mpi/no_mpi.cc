// Stands in for mpi/ where MPI is not built in.
#include "tessera/comm/communicator.h"
#include "tessera/comm/process_hosts.h"

namespace tessera::comm {

bool mpi_available() { return false; }
bool mpi_launched() { return false; }
Result<std::unique_ptr<Communicator>> mpi_world(const Options&) {
  return invalid_input(
      "this program is built without MPI; install an MPI (scripts/setup does) and configure with "
      "-DTESSERA_USE_MPI=ON");
}
Result<std::vector<std::string>> mpi_process_hosts() {
  return invalid_input("expected a program that is built with MPI, found one without");
}
void mpi_install_fault_handler() {}

}  // namespace tessera::comm
