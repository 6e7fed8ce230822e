// The order of devices says on which device of the machine each rank of a plan is. A rank's number
// and its program do not depend on it. In plan texts:
//
//   mesh = { pp = 2, row = 4, col = 4 }
//   device_order = ["row:2", "col:2"]     # blocks of 2 x 2 ranks on neighbouring devices
//   device_order = ["row", "col", "pp"]   # the last axis varies fastest: pp
//   device_order = [0, 4, 1, 5, ...]      # any list: the device of rank 0, of rank 1, ...
//
// A list of axes says which coordinates change from one device to the next: that of the last item
// changes fastest. "row:2" stands for a factor 2 of the axis row, that is, for two neighbouring
// coordinates. "row" without a number stands for the part of the axis that the other items do not
// name. Axes and factors that are not in the list change more slowly than those in the list, in the
// order of the mesh. If several items name one axis, they are the digits of its coordinate, and the
// first item is the most significant digit.
//
// For a stage with a mesh of its own, the key is in the entry of the stage. It then names axes of
// that mesh and only changes the order of the devices that the mesh has anyway.
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
  std::vector<int64_t> devices;   // by rank: its device; given instead of axes
  int line = 0;                   // line of the plan's text; ignored by ==
  bool empty() const { return axes.empty() && devices.empty(); }
  friend bool operator==(const DeviceOrder& a, const DeviceOrder& b) {
    return a.axes == b.axes && a.devices == b.devices;
  }
};

// Writes the value of the key; the order must not be empty.
std::string to_toml(const DeviceOrder& order);

// Returns for each rank of the mesh the device on which it is. The mesh is row-major over the list
// of (name, size). Errors, without the name of the file: an axis that the mesh does not have;
// factors whose product does not divide the size of their axis; a list of devices whose length is
// not the number of ranks; a device that the list names twice.
Result<std::vector<int64_t>> device_positions(
    const DeviceOrder& order, const std::vector<std::pair<std::string, int64_t>>& mesh);

struct Plan;
// Returns the device of each rank of the plan, by the `device_order` of the plan or of its stages;
// without one, rank r is on device r. Errors, with file:line: those of device_positions; axes in
// the plan's key although some ranks are not in the plan's mesh; a key in the plan and another one
// in a stage.
Result<RankDevices> rank_devices(const Plan& plan);

struct ResolvedPlan;
struct Cluster;
// An `AxisOnMachine` says over how many nodes the groups of an axis are spread. A group of an axis
// is the ranks that differ only in their coordinate on this axis.
struct AxisOnMachine {
  std::string mesh, axis;      // mesh: "{dp=2, tp=4}"
  int64_t size = 1;            // size of the axis
  int64_t nodes = 1;           // largest number of nodes over which a group is spread
  int64_t members_a_node = 1;  // largest number of members of a group on one node
  bool inside() const { return nodes == 1; }
};
// Returns the axes of the plan's mesh, if that mesh has all ranks, and the axes of the stages' own
// meshes. An axis of stages with equal meshes is listed once. Axes of size 1 are left out. The
// machine must be large enough for the plan.
std::vector<AxisOnMachine> axes_on_machine(const ResolvedPlan& plan, const Cluster& cluster);

}  // namespace tessera
