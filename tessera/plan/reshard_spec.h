// Short texts for layouts. "S0RR@2x4" is one side of a cross-mesh resharding: a tensor of rank 3
// whose first dim is cut over the hosts of a mesh of 2 hosts with 4 devices each. Each dim has R
// (whole), S0 (over hosts), S1 (over the devices of a host), S01 or S10 (over both, outermost
// first).
//
// For one mesh of any number of axes, the mesh is a text of its own, and P0 behind the dims says
// that the ranks along axis 0 hold parts of a sum: "S1RP0" on 2x4.
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
// Reads one side. Errors: the text, an axis used twice, not one entry for each dim.
Result<ReshardSpec> parse_reshard_spec(std::string_view text, size_t rank);
// Reads a mesh of axes "0", "1", ... of these sizes, the last axis fastest: "2x4". Errors: the
// text, a size below 1, more ranks or axes than are supported.
Result<Mesh> parse_mesh_sizes(std::string_view text);
// Reads the layout of a tensor of this rank on such a mesh. Errors: the text, an axis that the mesh
// does not have or that is used twice, not one entry for each dim.
Result<Layout> parse_layout_spec(std::string_view text, const Mesh& mesh, size_t rank);
// Returns the number of dims that the text names, whatever else is wrong with it.
size_t dims_of_layout_spec(std::string_view text);
std::string layout_spec(const Layout& layout);  // the text that parse_layout_spec reads

// Returns the side's holders; ranks are numbered from first_rank and hosts from first_host.
ReshardSide side_of(const ReshardSpec& spec, const std::vector<int64_t>& shape, int64_t first_rank,
                    int64_t first_host);

}  // namespace tessera
