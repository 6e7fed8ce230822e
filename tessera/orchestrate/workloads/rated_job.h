// A job of a fixed number of steps whose speed is known by where it runs.
#pragma once

#include <memory>

#include "tessera/orchestrate/share/job.h"

namespace tessera::share {

class Speeds {
 public:
  virtual ~Speeds() = default;
  // Returns steps a second; 0 where the job cannot run.
  virtual double steps_per_s(const Shape& shape, BatchRule rule) const = 0;
  virtual int least_gpus() const { return 1; }
  virtual int most_gpus(BatchRule rule) const = 0;
  virtual StateBytes state_bytes(const Shape&, BatchRule) const { return {}; }
};

std::shared_ptr<const JobModel> rated_job(std::shared_ptr<const Speeds> speeds, double steps);

// Returns a job that runs for so many seconds on exactly the GPUs that it asked for.
std::shared_ptr<const JobModel> rigid_job(int gpus, double seconds);

}  // namespace tessera::share
