// The links of a cluster by pair of devices, for planners of machines whose links differ by orders of
// magnitude.
//
//   const DeviceLinks links = device_links(estimator.collectives(), /*devices=*/16);
//   links.latency_seconds[0][9] + bytes / links.bytes_per_second[0][9];   // of one message
#pragma once

#include <cstdint>
#include <string>

#include "tessera/cost/collective_cost.h"
#include "tessera/planners/published/opfence.h"
#include "tessera/search/question/question.h"

namespace tessera {

// The most devices, and micro-batches, for which planners of this kind are meant.
inline constexpr int64_t kMostLinkedDevices = 128, kMostLinkedMicroBatches = 64;

struct DeviceLinks {
  published::Matrix latency_seconds, bytes_per_second;  // 0 between a device and itself
};
// Finds latency and rate of each pair from the costs of a small and of a large message that has the
// link for itself.
DeviceLinks device_links(const CollectiveCosts& costs, int64_t devices);

// Checks that the question fixes nothing that these planners do not choose: they leave layers whole,
// have one stage at each place, and the schedules gpipe and 1f1b. Also checks the number of devices.
Status check_linked_question(const PlanQuestion& question, const std::string& planner);
// Returns the error of a fixed key.
tl::unexpected<Error> refuse_fixed(const PlanQuestion& question, const std::string& key,
                                   const std::string& why);

}  // namespace tessera
