#include "tessera/plan/device_order.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "tessera/base/text.h"
#include "tessera/base/toml_reader.h"
#include "tessera/cluster/cluster.h"
#include "tessera/plan/plan.h"
#include "tessera/plan/resolve/selection.h"

namespace tessera {
namespace {

using NamedSizes = std::vector<std::pair<std::string, int64_t>>;

constexpr int64_t kMostDevices = int64_t{1} << 24;

// A `Digit` is one digit of a device's position in the order. It comes from one factor of the
// coordinate on an axis.
struct Digit {
  size_t axis = 0;     // index of the axis in the mesh
  int64_t size = 0;    // 0: the size of the axis over the product of its other factors
  int64_t below = 1;   // product of the later factors of the axis
  int64_t stride = 1;  // by how much a step of this digit changes the position
};

Result<Digit> read_digit(const std::string& text, const NamedSizes& mesh) {
  const size_t colon = text.find(':');
  const std::string name = text.substr(0, colon);
  Digit digit;
  if (colon != std::string::npos) {
    const auto size = parse_int(text.substr(colon + 1));
    if (!size || *size < 1) {
      return invalid_input(fmt::format(
          "expected 'axis' or 'axis:N' with N >= 1 in 'device_order', found '{}'", text));
    }
    digit.size = *size;
  }
  const auto found =
      std::ranges::find_if(mesh, [&](const auto& axis) { return axis.first == name; });
  if (found == mesh.end()) {
    std::vector<std::string> names;
    for (const auto& [axis, size] : mesh) names.push_back(axis);
    return invalid_input(fmt::format("axis '{}' in 'device_order' is not in the mesh {}{}", name,
                                     Mesh::row_major(mesh).to_string(), did_you_mean(name, names)));
  }
  digit.axis = static_cast<size_t>(found - mesh.begin());
  return digit;
}

// Returns the digits from the slowest to the fastest. The axes and factors that the order does not
// name come first.
Result<std::vector<Digit>> digits_of(const DeviceOrder& order, const NamedSizes& mesh) {
  std::vector<Digit> named;
  for (const std::string& text : order.axes) {
    TESSERA_TRY(named.emplace_back(), read_digit(text, mesh));
  }
  std::vector<Digit> all;
  for (size_t axis = 0; axis < mesh.size(); ++axis) {
    const auto& [name, size] = mesh[axis];
    int64_t product = 1;
    Digit* open = nullptr;
    for (Digit& digit : named) {
      if (digit.axis != axis) continue;
      if (digit.size == 0 && open != nullptr) {
        return invalid_input(
            fmt::format("axis '{}' is named twice without a size in 'device_order'", name));
      }
      if (digit.size == 0) open = &digit;
      if (digit.size > size) product = 0;  // divides nothing
      product *= std::max<int64_t>(digit.size, 1);
    }
    if (product == 0 || size % product != 0) {
      std::vector<std::string> factors;
      for (const Digit& digit : named) {
        if (digit.axis == axis && digit.size > 0) factors.push_back(std::to_string(digit.size));
      }
      return invalid_input(
          fmt::format("axis '{}' of size {} cannot be cut by its factors {} in 'device_order'",
                      name, size, join(factors, " x ")));
    }
    if (open != nullptr) {
      open->size = size / product;
    } else {
      all.push_back({axis, size / product});
    }
  }
  all.insert(all.end(), named.begin(), named.end());
  int64_t stride = 1;
  std::vector<int64_t> below(mesh.size(), 1);
  for (auto digit = all.rbegin(); digit != all.rend(); ++digit) {
    digit->stride = stride;
    digit->below = below[digit->axis];
    stride *= digit->size;
    below[digit->axis] *= digit->size;
  }
  return all;
}

// Checks that a list of devices has one device for each rank and no device twice.
Status check_order(const std::vector<int64_t>& devices, int64_t ranks) {
  if (static_cast<int64_t>(devices.size()) != ranks) {
    return invalid_input(fmt::format(
        "expected as many devices in 'device_order' as the plan has ranks, {}, found {}", ranks,
        devices.size()));
  }
  std::set<int64_t> seen;
  for (const int64_t device : devices) {
    if (device < 0 || device >= kMostDevices) {
      return invalid_input(fmt::format("expected devices from 0 to {} in 'device_order', found {}",
                                       kMostDevices - 1, device));
    }
    if (!seen.insert(device).second) {
      return invalid_input(fmt::format("device {} is named twice in 'device_order'", device));
    }
  }
  return {};
}

// Returns for each stage with a device order of its own the last entry that gives it one.
std::map<int64_t, const StageEntry*> own_orders(const Plan& plan) {
  std::map<int64_t, const StageEntry*> out;
  for (const StageEntry& entry : plan.stages) {
    if (!entry.device_order.empty()) out[entry.at] = &entry;
  }
  return out;
}

Result<RankDevices> by_stages(const Plan& plan,
                              const std::map<int64_t, const StageEntry*>& orders) {
  TESSERA_TRY(const std::vector<Mesh> meshes, stage_meshes(plan));
  std::vector<int64_t> devices(static_cast<size_t>(plan.ranks()));
  std::iota(devices.begin(), devices.end(), 0);
  std::map<int64_t, int64_t> placed;  // by rank: the stage whose order placed it
  for (const auto& [stage, entry] : orders) {
    const int line = entry->device_order.line;
    const int64_t first = meshes[static_cast<size_t>(stage)].first_device;
    auto positions = device_positions(entry->device_order, entry->mesh);
    if (!positions) return plan_error(plan, line, positions.error().message);
    for (size_t i = 0; i < positions->size(); ++i) {
      const auto rank = static_cast<size_t>(first) + i;
      if (const auto [it, fresh] = placed.try_emplace(static_cast<int64_t>(rank), stage); !fresh) {
        return plan_error(plan, line,
                          fmt::format("the stages {} and {} both order rank {}; order the ranks of "
                                      "one of them",
                                      it->second, stage, rank));
      }
      devices[rank] = first + (*positions)[i];
    }
  }
  return RankDevices(std::move(devices));
}

}  // namespace

Result<std::vector<int64_t>> device_positions(const DeviceOrder& order, const NamedSizes& mesh) {
  const int64_t ranks = Mesh::row_major(mesh).size();
  if (!order.devices.empty()) {
    TESSERA_TRY_VOID(check_order(order.devices, ranks));
    return order.devices;
  }
  TESSERA_TRY(const std::vector<Digit> digits, digits_of(order, mesh));
  std::vector<int64_t> out;
  out.reserve(static_cast<size_t>(ranks));
  const Mesh whole = Mesh::row_major(mesh);
  for (int64_t rank = 0; rank < ranks; ++rank) {
    const std::vector<int64_t> at = whole.coordinates(rank);
    int64_t position = 0;
    for (const Digit& digit : digits)
      position += at[digit.axis] / digit.below % digit.size * digit.stride;
    out.push_back(position);
  }
  return out;
}

Result<RankDevices> rank_devices(const Plan& plan) {
  const auto orders = own_orders(plan);
  if (plan.device_order.empty()) {
    return orders.empty() ? Result<RankDevices>(RankDevices()) : by_stages(plan, orders);
  }
  if (!orders.empty()) {
    return plan_error(
        plan, orders.begin()->second->device_order.line,
        fmt::format("'device_order' is given for the plan (line {}) and for stage {}; "
                    "expected one of them",
                    plan.device_order.line, orders.begin()->first));
  }
  const auto fail = [&](const Error& error) {
    return plan_error(plan, plan.device_order.line, error.message);
  };
  const int64_t ranks = plan.ranks();
  if (!plan.device_order.devices.empty()) {
    if (const Status listed = check_order(plan.device_order.devices, ranks); !listed)
      return fail(listed.error());
    return RankDevices(plan.device_order.devices);
  }
  const Mesh whole = Mesh::row_major(plan.mesh);
  if (whole.size() != ranks) {
    return plan_error(plan, plan.device_order.line,
                      fmt::format("'device_order' names axes of the mesh {} of {} ranks, but the "
                                  "plan has {}; order the ranks of stages with meshes of their own "
                                  "in their entries, or list devices",
                                  whole.to_string(), whole.size(), ranks));
  }
  auto positions = device_positions(plan.device_order, plan.mesh);
  if (!positions) return fail(positions.error());
  return RankDevices(std::move(*positions));
}

std::vector<AxisOnMachine> axes_on_machine(const ResolvedPlan& plan, const Cluster& cluster) {
  std::vector<Mesh> meshes;
  const Mesh whole = Mesh::row_major(plan.plan.mesh);
  if (whole.size() == plan.ranks) meshes.push_back(whole);
  for (const Place& place : plan.places) {
    const bool own = std::ranges::any_of(place.mesh.axes, [&](const MeshAxis& axis) {
      return std::ranges::find(whole.axes, axis) == whole.axes.end();
    });
    if (own || meshes.empty()) meshes.push_back(place.mesh);
  }
  std::vector<AxisOnMachine> out;
  for (const Mesh& mesh : meshes) {
    Axes all;
    for (size_t a = 0; a < mesh.axes.size(); ++a) all.emplace_back(a);
    const std::vector<int> ranks = mesh.group(std::vector<int64_t>(all.size(), 0), all);
    for (const AxisId axis : all) {
      const MeshAxis& of = mesh.axis(axis);
      if (of.size == 1) continue;
      std::map<int64_t, std::map<int64_t, int64_t>> groups;  // members by first rank and node
      for (const int rank : ranks) {
        std::vector<int64_t> at = mesh.coordinates(rank);
        at[axis.index()] = 0;
        ++groups[mesh.rank_at(at)][cluster.locate(plan.devices.device_of(rank)).node];
      }
      AxisOnMachine found{mesh.to_string(), of.name, of.size, 1, 1};
      for (const auto& [first, members] : groups) {
        found.nodes = std::max(found.nodes, static_cast<int64_t>(members.size()));
        for (const auto& [node, count] : members)
          found.members_a_node = std::max(found.members_a_node, count);
      }
      const auto same = std::ranges::find_if(out, [&](const AxisOnMachine& other) {
        return other.mesh == found.mesh && other.axis == found.axis;
      });
      if (same == out.end()) {
        out.push_back(std::move(found));
      } else {
        same->nodes = std::max(same->nodes, found.nodes);
        same->members_a_node = std::max(same->members_a_node, found.members_a_node);
      }
    }
  }
  return out;
}

}  // namespace tessera
