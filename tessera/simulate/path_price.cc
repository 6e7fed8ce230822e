#include "tessera/simulate/path_price.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "tessera/simulate/exchange_load.h"

namespace tessera {
namespace {

// Groups with more members than this are priced without a list of which member copies what to
// which, because the list takes long to make.
constexpr int64_t kMostListed = 256;

// Returns the groups of a step over these axes, each as the list of its ranks.
std::vector<std::vector<int64_t>> groups_over(const Axes& axes, const Mesh& mesh) {
  std::vector<std::vector<int64_t>> out;
  for (int64_t rank = 0; rank < mesh.size(); ++rank) {
    const std::vector<int64_t> at = mesh.coordinates(rank);
    const bool is_first =
        std::all_of(axes.begin(), axes.end(), [&](AxisId axis) { return at[axis.index()] == 0; });
    if (!is_first) continue;
    std::vector<int64_t>& group = out.emplace_back();
    for (const int member : mesh.group(at, axes)) group.push_back(member);
  }
  return out;
}

class PathPrices {
 public:
  PathPrices(const Mesh& mesh, const std::vector<int64_t>& shape, DType dtype,
             const Cluster* cluster, const Style& style)
      : mesh_(mesh), shape_(shape), dtype_(dtype), cluster_(cluster) {
    if (cluster != nullptr) costs_.emplace(*cluster, style);
  }

  StepPrice price(const Layout& from, const ConversionStep& step) const {
    StepPrice out;
    if (step.slice) return out;
    const auto groups = groups_over(step.axes, mesh_);
    out.members = static_cast<int64_t>(groups.front().size());
    const std::map<int64_t, int64_t> on_node = groups_by_node(groups);
    for (const std::vector<int64_t>& ranks : groups) {
      const Issue issue = issue_of(from, step, ranks);
      const bool listed = out.members <= kMostListed;
      const int64_t sent = listed ? busiest(issue) : formula_bytes(from, step);
      out.bytes = std::max(out.bytes, sent);
      if (!costs_) continue;
      const GroupPlacement where = place_group(*cluster_, ranks, sharing(ranks, on_node));
      const ExchangeLoad load = listed ? load_of(issue, where, ranks) : ExchangeLoad{};
      const CollectiveCost cost =
          costs_->collective(step.kind, where, whole_bytes(issue, sent, out.members), load);
      if (!out.cost || cost.seconds() > out.cost->seconds()) out.cost = cost;
    }
    return out;
  }

 private:
  Issue issue_of(const Layout& from, const ConversionStep& step,
                 const std::vector<int64_t>& ranks) const {
    Issue issue;
    issue.kind = step.kind;
    issue.dtype = dtype_;
    if (from.partial != step.to.partial) issue.combiner = from.combiner;
    std::vector<Box> hold;
    std::vector<Box> need;
    for (const int64_t rank : ranks) {
      const std::vector<int64_t> at = mesh_.coordinates(rank);
      hold.push_back(region_of(from, mesh_, shape_, at));
      need.push_back(region_of(step.to, mesh_, shape_, at));
    }
    issue.transfers.push_back({TensorId(0), std::move(hold), std::move(need), {}, {}});
    return issue;
  }

  static int64_t busiest(const Issue& issue) {
    const Transfer& transfer = issue.transfers.front();
    const Redistribution what{issue.kind, issue.combiner, issue.dtype, transfer.hold,
                              transfer.need};
    int64_t most = 0;
    for (size_t member = 0; member < what.hold.size(); ++member)
      most = std::max(most, traffic(what, member).bytes);
    return most;
  }
  // Returns the bytes of a step by path_cost, the formula by which paths are searched. The formula
  // adds 1 for each step, which is taken off.
  int64_t formula_bytes(const Layout& from, const ConversionStep& step) const {
    const double elements = path_cost(from, {step}, mesh_, shape_) - 1;
    return static_cast<int64_t>(elements) * dtype_bytes(dtype_);
  }

  // Returns the bytes that collective() takes: those of the whole array on one member. For an
  // exchange these are the bytes of an array such that, in an all-to-all of it, each member would
  // send as much as the busiest member of the exchange.
  static int64_t whole_bytes(const Issue& issue, int64_t sent, int64_t members) {
    const Transfer& transfer = issue.transfers.front();
    const auto most = [&](const SharedBoxes& boxes) {
      int64_t elements = 0;
      for (const Box& box : boxes) elements = std::max(elements, box.volume());
      return elements * dtype_bytes(issue.dtype);
    };
    switch (issue.kind) {
      case CollectiveKind::kExchange:
      case CollectiveKind::kPermute: return sent * members / std::max<int64_t>(1, members - 1);
      case CollectiveKind::kAllGather:
      case CollectiveKind::kBroadcast: return most(transfer.need);
      default: return most(transfer.hold);
    }
  }

  std::map<int64_t, int64_t> groups_by_node(const std::vector<std::vector<int64_t>>& groups) const {
    std::map<int64_t, int64_t> out;
    if (!costs_) return out;
    for (const std::vector<int64_t>& ranks : groups) {
      std::set<int64_t> nodes;
      for (const int64_t rank : ranks) nodes.insert(cluster_->locate(rank).node);
      for (const int64_t node : nodes) ++out[node];
    }
    return out;
  }
  int64_t sharing(const std::vector<int64_t>& ranks,
                  const std::map<int64_t, int64_t>& on_node) const {
    int64_t most = 1;
    for (const int64_t rank : ranks) most = std::max(most, on_node.at(cluster_->locate(rank).node));
    return most;
  }
  ExchangeLoad load_of(const Issue& issue, const GroupPlacement& where,
                       const std::vector<int64_t>& ranks) const {
    if (issue.kind != CollectiveKind::kExchange || issue.combiner || where.nodes == 1) return {};
    std::vector<int64_t> nodes;
    for (const int64_t rank : ranks) nodes.push_back(cluster_->locate(rank).node);
    return exchange_load(issue, nodes);
  }

  const Mesh& mesh_;
  const std::vector<int64_t>& shape_;
  DType dtype_;
  const Cluster* cluster_;
  std::optional<CollectiveCosts> costs_;
};

}  // namespace

Result<std::vector<StepPrice>> price_path(const Layout& from,
                                          const std::vector<ConversionStep>& path, const Mesh& mesh,
                                          const std::vector<int64_t>& shape, DType dtype,
                                          const Cluster* cluster, const Style& style) {
  if (cluster != nullptr && mesh.size() > cluster->devices()) {
    return invalid_input(fmt::format("mesh of {} ranks: expected at most {}, the devices of {}",
                                     mesh.size(), cluster->devices(), cluster->name));
  }
  const PathPrices prices(mesh, shape, dtype, cluster, style);
  std::vector<StepPrice> out;
  const Layout* at = &from;
  for (const ConversionStep& step : path) {
    out.push_back(prices.price(*at, step));
    at = &step.to;
  }
  return out;
}

}  // namespace tessera
