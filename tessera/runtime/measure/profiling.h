// `tessera profile`: measures this machine through the runtime's own kernels and communicators into
// a Profile, the tables that the cost model prefers over constants
// (docs/guides/profile-a-machine.md). No torch in this header.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/cluster/profile.h"

namespace tessera {

struct ProfileOptions {
  std::string device = "cpu";
  std::vector<int64_t> ranks{1, 2, 4};  // numbers of ranks that work at the same time; each number
                                        // is measured
  int64_t threads = 1;  // threads of a rank inside a kernel, as `threads` of the run file
  bool quick = false;   // fewer shapes and repeats: about a fifth of the time
  // Called before each part of the work with the part's name and the share of all work that is
  // done, 0..1.
  std::function<void(const std::string& what, double done)> progress;
};
// Measures kernels, the interpreter, and collectives between threads. Errors: a device that this
// build cannot compute on.
Result<Profile> profile_machine(const ProfileOptions& options);

// The training step whose kernels are measured: a model under a plan.
struct StepToProfile {
  std::string model, plan;
  int64_t batch = 0;
  std::string precision = "float32";
};
// Measures the kernels of the step with exactly the sizes that they have in the step, on as many
// rank threads as the plan has ranks, and adds the times to `profile`. Returns how many sizes
// were measured.
Result<size_t> profile_step(const ProfileOptions& options, const StepToProfile& step,
                            Profile& profile);

// Returns a profile of this machine without a measurement.
Result<Profile> describe_machine(const ProfileOptions& options);
// Measures collectives and messages between the processes of an MPI launcher and adds the times to
// the `profile` of each process. All processes call this function. Returns true on the process that
// is to write the profile to a file, else false.
Result<bool> profile_processes(const ProfileOptions& options, Profile& profile);

// Returns the processor as the system names it: "AMD EPYC, 2 cores, 32 MiB cache".
std::string machine_name();

}  // namespace tessera
