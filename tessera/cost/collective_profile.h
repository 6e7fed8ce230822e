// Looks up the collectives that a profile has measured. Their families are named
// "all_reduce.threads", "all_gather.mpi", "all_to_all.nccl" and so on, and have the coordinates
// (ranks, bytes) or (nodes, ranks, bytes).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "tessera/cluster/profile.h"
#include "tessera/cost/figure.h"
#include "tessera/cost/style.h"

namespace tessera {

// Returns the time of a collective of `ranks` members over `nodes` nodes, or nothing if no family
// fits. `bytes` is as in CollectiveCosts::collective. Times are interpolated linearly in the
// logarithms, first over the bytes, then over the ranks. A larger size never takes less time than a
// smaller one that was measured. Below the smallest size the time is that of the smallest; above
// the largest it grows in proportion to the bytes. Outside the measured numbers of ranks it is
// proportional to the ranks, from the nearest number. If a size is more than a factor of 2 away
// from all samples, the uncertainty is larger. The first transport of threads, nccl and mpi that
// has a family is used. Over several nodes a family fits only if it has the coordinate `nodes` with
// samples of exactly this number; a family without this coordinate was measured inside one node.
std::optional<Figure> profiled_collective(const Profile& profile, std::string_view collective,
                                          int64_t nodes, int64_t ranks, int64_t bytes,
                                          Style::Transport transport = Style::Transport::kAny);
// Returns the time of a message inside a node, from families such as "message.threads" with the
// coordinate (bytes). The rules for sizes and transports are those of profiled_collective.
std::optional<Figure> profiled_message(const Profile& profile, int64_t bytes,
                                       Style::Transport transport);

}  // namespace tessera
