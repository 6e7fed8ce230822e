// Admission: checks the jobs before anything runs, and says which have been submitted by when.
#pragma once

#include <string>
#include <vector>

#include "tessera/orchestrate/share/machines.h"

namespace tessera::share {

// Checks that the jobs are in order of submission, that no two have one name, and that each can run
// on the machines. The errors begin with `where`, the file.
Status check_jobs(const std::vector<JobSpec>& jobs, const Machines& machines,
                  const std::string& where);

class Admission {
 public:
  explicit Admission(const std::vector<JobSpec>& jobs) : jobs_(&jobs) {}
  // Returns how many jobs, from the first on, have been submitted by that time.
  size_t submitted_by(double now_s) const;
  // Returns when the next job after the first `seen` is submitted; kNever after the last.
  double next_s(size_t seen) const;

 private:
  const std::vector<JobSpec>* jobs_;
};

}  // namespace tessera::share
