#include "tessera/orchestrate/share/job.h"

#include <numeric>

namespace tessera::share {

int Allocation::gpus() const {
  int out = 0;
  for (const Part& part : parts) out += part.gpus;
  return out;
}

int Shape::total() const { return std::accumulate(gpus.begin(), gpus.end(), 0); }

Observed JobModel::observe(const JobRun& run) const {
  const double share = total() > 0 ? run.done / total() : 0;
  return {.samples = run.done,
          .epoch_samples = total() / static_cast<double>(epochs()),
          .first_loss = 1,
          .loss = 1 - share,
          .accuracy = share};
}

}  // namespace tessera::share
