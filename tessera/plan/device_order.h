// The order of devices says on which device of the machine each rank of a plan is. A rank's number
// and its program do not depend on it. In plan texts:
//
//   mesh = { pp = 2, row = 4, col = 4 }
//   device_order = ["row:2", "col:2"]     # blocks of 2 x 2 ranks on neighbouring devices
//   device_order = ["row", "col", "pp"]   # the last axis varies fastest: pp
//   device_order = [0, 4, 1, 5, ...]      # any list: the device of rank 0, of rank 1, ...
//
// A list of axes says which coordinates change from one device to the next: the last item changes
// fastest. "row:2" takes a factor 2 of the axis row, which is two neighbouring coordinates; "row"
// takes what the other items leave of the axis. Axes and factors that the list does not name change
// more slowly than those that it names, in the order of the mesh. Several factors of one axis are
// digits of its coordinate, the first one the most significant.
//
// A stage with a mesh of its own has the key in its entry: axes of that mesh, laid on the devices
// that the mesh has without it.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/cluster/rank_devices.h"

namespace tessera {

struct DeviceOrder {
  std::vector<std::string> axes;  // "row:2" or "row"
  std::vector<int64_t> devices;   // by rank; given instead of axes
  int line = 0;                   // line of the plan's text; equality ignores it
  bool empty() const { return axes.empty() && devices.empty(); }
  friend bool operator==(const DeviceOrder& a, const DeviceOrder& b) {
    return a.axes == b.axes && a.devices == b.devices;
  }
};

std::string to_toml(const DeviceOrder& order);  // value of the key; not for an empty order

// Returns the device of each rank of a mesh, which is row-major over the (name, size) list. Errors,
// without the file's name: an axis that the mesh does not have, factors that do not divide it, a
// list of devices whose length is not the number of ranks, or that names a device twice.
Result<std::vector<int64_t>> device_positions(
    const DeviceOrder& order, const std::vector<std::pair<std::string, int64_t>>& mesh);

struct Plan;
// Returns the devices by the plan's `device_order`, or those of its stages. Errors: as above, with
// file:line; axes where the plan's mesh does not have all ranks; a key in the plan and in a stage.
Result<RankDevices> rank_devices(const Plan& plan);

struct ResolvedPlan;
struct Cluster;
// An `AxisOnMachine` says how the groups of ranks that differ only on one axis lie on a machine
// that is large enough.
struct AxisOnMachine {
  std::string mesh, axis;      // mesh: "{dp=2, tp=4}"
  int64_t size = 1;            // of the axis
  int64_t nodes = 1;           // nodes over which a group is spread; the most of all groups
  int64_t members_a_node = 1;  // members of a group on a node; the most
  bool inside() const { return nodes == 1; }
};
// Returns the axes of the plan's mesh, if it has all ranks, and of the stages' own meshes: each
// mesh and axis once, without axes of size 1.
std::vector<AxisOnMachine> axes_on_machine(const ResolvedPlan& plan, const Cluster& cluster);

}  // namespace tessera
