// Writes an order of hosts in the forms that launchers read. A rank's place is a host and the
// number of its device there.
//
//   form            for
//   hostfile        mpirun --hostfile FILE, which fills host after host
//   rankfile        mpirun --rankfile FILE (Open MPI): the host and slot of each rank
//   slurm           SLURM_HOSTFILE=FILE srun --distribution=arbitrary: a line for each rank
//   torchrun        a shell command for each host, with static node ranks
//   json            a list of all ranks with host, device and node rank
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/result.h"

namespace tessera {

struct PlacedRank {
  std::string host;
  int64_t device = 0;  // of the host
  friend bool operator==(const PlacedRank&, const PlacedRank&) = default;
};

enum class HostFileForm : uint8_t { kHostfile, kRankfile, kSlurm, kTorchrun, kJson };
std::vector<std::string> host_file_forms();

// "rankfile=my.txt" as a form and a path. Errors, one line: no `=`, or another form.
struct HostFile {
  HostFileForm form = HostFileForm::kHostfile;
  std::string path;
};
Result<HostFile> parse_host_file(std::string_view text);

// Returns the text of the form. `places` is by rank. Errors, one line: the forms hostfile and
// torchrun number ranks host by host in the order of devices, and slurm numbers the ranks of each host
// so; they cannot express other places.
Result<std::string> host_file_text(HostFileForm form, const std::vector<PlacedRank>& places);

}  // namespace tessera
