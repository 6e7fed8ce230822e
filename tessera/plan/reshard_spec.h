// Short texts for one side of a cross-mesh resharding: "S0RR@2x4" is a tensor of rank 3 whose first
// dim is cut over the hosts of a mesh of 2 hosts with 4 devices each. By dim: R (whole), S0 (over
// hosts), S1 (over the devices of a host), S01 or S10 (over both, outermost first).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/cluster/mesh.h"
#include "tessera/plan/layout.h"
#include "tessera/plan/reshard.h"

namespace tessera {

struct ReshardSpec {
  Mesh mesh;  // {host, device}
  Layout layout;
  int64_t devices_per_host() const { return mesh.axes[1].size; }
};
// Errors: the text, an axis used twice, not one entry a dim.
Result<ReshardSpec> parse_reshard_spec(std::string_view text, size_t rank);
// The side's ranks and hosts, ranks numbered from first_rank and hosts from first_host.
ReshardSide side_of(const ReshardSpec& spec, const std::vector<int64_t>& shape, int64_t first_rank,
                    int64_t first_host);

}  // namespace tessera
