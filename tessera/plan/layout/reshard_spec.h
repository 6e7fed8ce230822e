// Short texts for layouts. "S0RR@2x4" describes one side of a cross-mesh resharding (reshard.h): a
// tensor of rank 3 on a mesh of 2 hosts with 4 devices each, whose first dim is cut over the hosts.
// Each dim is written R (whole), S0 (cut over the hosts), S1 (cut over the devices of a host), or
// S01 or S10 (cut over both, outermost axis first).
//
// A layout on a mesh with any number of axes has two texts, one for the mesh ("2x4") and one for
// the layout ("S1RP0"). P0 after the dims says that the ranks along axis 0 hold parts of a sum.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/cluster/mesh.h"
#include "tessera/plan/layout/layout.h"
#include "tessera/plan/layout/reshard.h"

namespace tessera {

struct ReshardSpec {
  Mesh mesh;  // {host, device}
  Layout layout;
  int64_t devices_per_host() const { return mesh.axes[1].size; }
};
// Reads one side for a tensor of `rank` dims. Errors: the text has another form; it names an axis
// twice; it has fewer or more entries than dims.
Result<ReshardSpec> parse_reshard_spec(std::string_view text, size_t rank);
// Reads the sizes of a mesh, such as "2x4". Its axes have the names "0", "1", ..., and the last
// axis is the fastest. Errors: the text has another form; a size is below 1; there are more ranks
// or axes than are supported.
Result<Mesh> parse_mesh_sizes(std::string_view text);
// Reads the layout of a tensor of `rank` dims on a mesh of parse_mesh_sizes. Errors: the text has
// another form; it names an axis that the mesh does not have, or names an axis twice; it has fewer
// or more entries than dims.
Result<Layout> parse_layout_spec(std::string_view text, const Mesh& mesh, size_t rank);
// Returns the number of dims that the text of a layout names, also if the text has errors.
size_t dims_of_layout_spec(std::string_view text);
std::string layout_spec(const Layout& layout);  // the text that parse_layout_spec reads

// Returns which box each rank of the side holds for a tensor of this shape. Ranks are numbered from
// first_rank, hosts from first_host.
ReshardSide side_of(const ReshardSpec& spec, const std::vector<int64_t>& shape, int64_t first_rank,
                    int64_t first_host);

}  // namespace tessera
