// Look-up of a profile's measured collectives: families "all_reduce.threads", "all_gather.mpi",
// "all_to_all.nccl" over (ranks, bytes), or over (nodes, ranks, bytes).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "tessera/cluster/profile.h"
#include "tessera/cost/figure.h"
#include "tessera/cost/style.h"

namespace tessera {

// Returns the time of a collective of `ranks` members over `nodes` nodes, with `bytes` as in
// CollectiveCosts::collective. It interpolates linearly in the logarithms, first over the bytes,
// then over the ranks; a larger size is never quicker than a measured smaller one. Below the
// smallest size it takes that size's time, above the largest it scales in proportion to the bytes;
// outside the measured ranks it scales from the nearest. A factor beyond 2 from a sample raises the
// uncertainty. Transports inside a node: threads, nccl, mpi, in this order; between nodes only
// families with the coordinate `nodes`, of exactly these nodes, or mpi. Nothing if there is no such
// family.
std::optional<Figure> profiled_collective(const Profile& profile, std::string_view collective,
                                          int64_t nodes, int64_t ranks, int64_t bytes,
                                          Style::Transport transport = Style::Transport::kAny);
// Returns the time of a message inside a node, from families "message.threads" over (bytes), by the
// same rules.
std::optional<Figure> profiled_message(const Profile& profile, int64_t bytes,
                                       Style::Transport transport);

}  // namespace tessera
