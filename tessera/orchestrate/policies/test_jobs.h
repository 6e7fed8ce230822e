// Random small instances for tests of policies.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <map>

#include "tessera/orchestrate/share/controller.h"
#include "tessera/orchestrate/share/random.h"
#include "tessera/orchestrate/workloads/rated_job.h"

namespace tessera::share {

// Steps a second that grow with a power of the GPUs.
class PowerSpeeds : public Speeds {
 public:
  PowerSpeeds(double power, int most) : power_(power), most_(most) {}
  double steps_per_s(const Shape& shape, BatchRule) const override {
    const int gpus = shape.total();
    return gpus >= 1 && gpus <= most_ ? std::pow(gpus, power_) : 0;
  }
  int most_gpus(BatchRule) const override { return most_; }

 private:
  double power_;
  int most_;
};

struct Instance {
  Machines machines;
  std::vector<JobSpec> jobs;
  ControllerOptions options;
};

inline Instance random_instance(uint64_t seed, int most_jobs, int most_nodes, bool all_at_once) {
  Random random(seed, 21);
  Instance out;
  const auto nodes = 1 + random.below(static_cast<size_t>(most_nodes));
  out.machines = *parse_machines(fmt::format("{}x4", nodes));
  const int gpus = out.machines.gpus();
  const auto jobs = 2 + random.below(static_cast<size_t>(most_jobs - 1));
  double now = 0;
  for (size_t i = 0; i < jobs; ++i) {
    JobSpec job;
    job.name = fmt::format("job-{}", i);
    if (!all_at_once) now += random.exponential(120);
    job.submit_s = now;
    job.gpus = static_cast<int>(1 + random.below(static_cast<size_t>(gpus)));
    const double power = 0.5 + 0.5 * random.uniform();
    const double seconds = std::exp(std::log(600.0) + random.normal());
    job.model = rated_job(std::make_shared<PowerSpeeds>(power, gpus), std::max(30.0, seconds));
    out.jobs.push_back(std::move(job));
  }
  out.options.round_s = 10;
  out.options.switching.seconds = 5;
  return out;
}

inline double mean_jct(const Instance& instance, const Outcome& outcome) {
  double sum = 0;
  for (size_t i = 0; i < instance.jobs.size(); ++i)
    sum += outcome.jobs[i].end_s - instance.jobs[i].submit_s;
  return sum / static_cast<double>(instance.jobs.size());
}

}  // namespace tessera::share
