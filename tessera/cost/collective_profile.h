// Measured collectives of a profile: families "all_reduce.threads", "all_gather.mpi",
// "all_to_all.nccl" over (ranks, bytes), or over (nodes, ranks, bytes).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "tessera/cluster/profile.h"
#include "tessera/cost/figure.h"
#include "tessera/cost/style.h"

namespace tessera {

// The time of `ranks` members over `nodes` nodes, `bytes` as in CollectiveCosts::collective.
// Between samples linear in the logarithms, first in the bytes, then in the ranks; a larger size is
// never quicker than a measured smaller one. Below the smallest size its time, above the largest in
// proportion to the bytes; ranks outside the measured ones in proportion to the nearest. A factor
// beyond 2 from a sample raises the uncertainty. Transports: inside a node threads, nccl, mpi, in
// this order; between nodes only families with the coordinate `nodes`, of exactly these nodes, or
// mpi. Nothing if there is no such family.
std::optional<Figure> profiled_collective(const Profile& profile, std::string_view collective,
                                          int64_t nodes, int64_t ranks, int64_t bytes,
                                          Style::Transport transport = Style::Transport::kAny);
// A message inside a node: families "message.threads" over (bytes), by the same rules.
std::optional<Figure> profiled_message(const Profile& profile, int64_t bytes,
                                       Style::Transport transport);

}  // namespace tessera
