// A job that trains an application of the Pollux traces. A unit of its work is a step at the smallest
// measured batch.
#pragma once

#include <memory>

#include "tessera/orchestrate/share/job.h"
#include "tessera/orchestrate/workloads/application.h"

namespace tessera::share {

// `batch`: the total batch that the user asked for, on `gpus` GPUs.
std::shared_ptr<const JobModel> trained_job(std::shared_ptr<const Application> application,
                                            int64_t batch, int gpus);

}  // namespace tessera::share
