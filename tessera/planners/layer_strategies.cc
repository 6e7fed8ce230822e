#include "tessera/planners/layer_strategies.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

namespace tessera {
namespace {

// Returns whether this bit of a rank's number in its stage distinguishes replicas (else
// tensor-parallel ranks). Bit 0 distinguishes neighbouring devices.
bool counts_replicas(const LayerStrategy& strategy, int bit) {
  const int64_t inside = strategy.data_inside ? strategy.data : strategy.tensor;
  const bool is_inside = (int64_t{1} << bit) < inside;
  return is_inside == strategy.data_inside;
}

std::vector<int64_t> devices_along(int64_t count, int64_t stride) {
  std::vector<int64_t> out;
  for (int64_t i = 0; i < count; ++i) out.push_back(i * stride);
  return out;
}

// Returns the distance between tensor-parallel ranks with which units are priced: the smallest one
// with the price of the true distance, so that more strategies share a price.
int64_t priced_stride(const Cluster& cluster, const LayerStrategy& strategy) {
  if (!strategy.data_inside) return 1;
  const int64_t node = cluster.type_of(0).devices;
  const auto place = [&](int64_t stride) {
    return place_group(cluster, devices_along(strategy.tensor, stride), std::min(stride, node));
  };
  int64_t stride = strategy.data;
  while (stride > 1 && place(stride / 2) == place(strategy.data)) stride /= 2;
  return stride;
}

}  // namespace

std::string to_string(const LayerStrategy& strategy) {
  const std::string data = fmt::format("dp{}", strategy.data);
  const std::string tensor = fmt::format("tp{}{}", strategy.tensor,
                                         strategy.tensor > 1 && strategy.list > 0 ? "+seq" : "");
  std::string out = strategy.data_inside ? data + " " + tensor : tensor + " " + data;
  if (strategy.sharded > 0) out += fmt::format(" sharded={}", strategy.sharded);
  if (strategy.recompute != "none") out += " recompute=" + strategy.recompute;
  return out;
}

const std::vector<std::vector<std::string>>& tensor_lists() {
  static const std::vector<std::vector<std::string>> lists = {{"heads", "ffn", "vocab"},
                                                              {"heads", "ffn", "vocab", "seq"}};
  return lists;
}

std::vector<LayerStrategy> layer_strategies(int64_t devices, const std::vector<int64_t>& sharded,
                                            const std::vector<std::string>& recompute) {
  std::vector<LayerStrategy> out;
  for (int64_t tensor = 1; tensor <= devices; tensor *= 2) {
    const int64_t data = devices / tensor;
    for (size_t list = 0; list < (tensor > 1 ? tensor_lists().size() : 1); ++list) {
      for (const bool inside : {false, true}) {
        if (inside && (tensor == 1 || data == 1)) continue;
        for (const int64_t level : data > 1 ? sharded : std::vector<int64_t>{0}) {
          for (const std::string& again : recompute)
            out.push_back({data, tensor, inside, list, level, again});
        }
      }
    }
  }
  return out;
}

bool same_layout(const LayerStrategy& a, const LayerStrategy& b) {
  return a.data == b.data && a.tensor == b.tensor && a.data_inside == b.data_inside &&
         a.list == b.list;
}

UnitLayout layout_of(const LayerStrategy& strategy) {
  return {strategy.data, strategy.data_inside ? 1 : strategy.tensor, 1, 0};
}

Conversions::Conversions(const Fold& fold, const CollectiveCosts& collectives,
                         const Cluster& cluster, int64_t devices)
    : fold_(fold), collectives_(collectives), cluster_(cluster), devices_(devices) {
  first_.resize(static_cast<size_t>(fold.folded_units));
  last_.resize(first_.size());
  for (const Op& op : fold.graph.ops()) {
    const auto unit = static_cast<size_t>(fold.unit_of[op.id.index()]);
    if (!first_[unit].valid()) first_[unit] = op.id;
    last_[unit] = op.id;
  }
}

double Conversions::seconds(int from, const LayerStrategy& a, int to, const LayerStrategy& b,
                            double bytes) const {
  Bits gathered, gathered_back, swapped;
  double pieces = 1, pieces_after = 1;
  for (int bit = 0; (int64_t{1} << bit) < devices_; ++bit) {
    const std::string made = cut(last_[static_cast<size_t>(from)], a, bit, true);
    const std::string read = cut(first_[static_cast<size_t>(to)], b, bit, false);
    pieces *= made.empty() ? 1 : 2;
    pieces_after *= read.empty() ? 1 : 2;
    if (made == read) continue;
    if (read.empty()) gathered.push_back(bit);
    if (made.empty()) gathered_back.push_back(bit);
    if (!made.empty() && !read.empty()) swapped.push_back(bit);
  }
  const auto whole = [](const Bits& bits) { return std::exp2(static_cast<double>(bits.size())); };
  double out = moved(CollectiveKind::kAllGather, gathered, bytes / pieces * whole(gathered));
  out +=
      moved(CollectiveKind::kAllGather, gathered_back, bytes / pieces_after * whole(gathered_back));
  out += moved(CollectiveKind::kAllToAll, swapped, bytes / pieces);
  out += moved(CollectiveKind::kAllToAll, swapped, bytes / pieces_after);
  return out;
}

std::string Conversions::cut(OpId id, const LayerStrategy& strategy, int bit, bool is_made) const {
  const Op& op = fold_.graph.op(id);
  ChoiceAxis axis{"", 2, {"batch"}};
  if (!counts_replicas(strategy, bit)) axis.dims = tensor_lists()[strategy.list];
  std::string name = dim_to_cut(op, axis);
  const auto& operands = is_made ? op.annotation.outputs : op.annotation.inputs;
  const int dim = op.annotation.find(name);
  if (dim < 0 || operands.empty()) return "";
  for (const DimGroup& group : operands[0].dims) {
    if (std::find(group.begin(), group.end(), dim) != group.end()) return name;
  }
  return "";
}

double Conversions::moved(CollectiveKind kind, const Bits& bits, double bytes) const {
  if (bits.empty()) return 0;
  std::vector<int64_t> members = {0};
  for (const int bit : bits) {
    const size_t count = members.size();
    for (size_t i = 0; i < count; ++i) members.push_back(members[i] + (int64_t{1} << bit));
  }
  std::sort(members.begin(), members.end());
  GroupPlacement group = place_group(cluster_, members, 1);
  const int64_t neighbours = std::min(devices_, cluster_.type_of(0).devices);
  group.groups_a_node = std::max<int64_t>(1, neighbours / group.members_a_node);
  return collectives_.collective(kind, group, static_cast<int64_t>(bytes)).seconds();
}

bool order_matters(const Cluster& cluster, const LayerStrategy& strategy) {
  const auto differs = [&](int64_t count, int64_t other) {
    return place_group(cluster, devices_along(count, 1), 1) !=
           place_group(cluster, devices_along(count, other), 1);
  };
  return differs(strategy.tensor, strategy.data) || differs(strategy.data, strategy.tensor);
}

std::optional<UnitQuestion> question_for(const Cluster& cluster, const LayerStrategy& strategy,
                                         int64_t micro_batch, int64_t most) {
  if (micro_batch % strategy.data != 0) return {};
  UnitQuestion out;
  out.sequences = micro_batch / strategy.data;
  if (out.sequences > most || !std::has_single_bit(static_cast<uint64_t>(out.sequences))) return {};
  out.recompute = strategy.recompute;
  if (strategy.tensor > 1) out.axes = {{"tp", strategy.tensor, tensor_lists()[strategy.list]}};
  // An axis without dims increases the distance between the ranks; its devices do equal work.
  const int64_t stride = priced_stride(cluster, strategy);
  if (stride > 1) out.axes.push_back({"dp", stride, {}});
  return out;
}

namespace {

// The axes of a stage, outermost first, with which all given strategies can be written. dims()
// returns the dims that a strategy cuts over each axis.
struct StageAxes {
  std::vector<ChoiceAxis> axes;
  std::vector<int64_t> begins;  // by axis: the distance in devices between its ranks

  StageAxes(int64_t devices, const std::vector<const LayerStrategy*>& used) {
    std::vector<int64_t> borders = {1, devices};
    for (const LayerStrategy* strategy : used)
      borders.push_back(strategy->data_inside ? strategy->data : strategy->tensor);
    std::sort(borders.begin(), borders.end());
    borders.erase(std::unique(borders.begin(), borders.end()), borders.end());
    for (size_t i = borders.size(); i-- > 1;) {
      axes.push_back({fmt::format("s{}", borders.size() - 1 - i), borders[i] / borders[i - 1], {}});
      begins.push_back(borders[i - 1]);
    }
    if (axes.empty()) {
      axes.push_back({"dp", 1, {"batch"}});
      begins.push_back(1);
    }
  }
  std::vector<std::vector<std::string>> dims(const LayerStrategy& strategy) const {
    std::vector<std::vector<std::string>> out;
    for (const int64_t begin : begins) {
      const bool data = counts_replicas(strategy, std::countr_zero(static_cast<uint64_t>(begin)));
      out.push_back(data ? std::vector<std::string>{"batch"} : tensor_lists()[strategy.list]);
    }
    return out;
  }
};

}  // namespace

void write_leaves(Choice& choice, int64_t devices,
                  const std::vector<const LayerStrategy*>& leaves) {
  const LayerStrategy* common = leaves.front();
  for (const LayerStrategy* one : leaves) {
    if (std::count(leaves.begin(), leaves.end(), one) >
        std::count(leaves.begin(), leaves.end(), common))
      common = one;
  }
  StageAxes mesh(devices, leaves);
  const auto dims = mesh.dims(*common);
  for (size_t a = 0; a < mesh.axes.size(); ++a) {
    mesh.axes[a].dims = dims[a];
  }
  if (mesh.axes.size() <= 2 &&
      std::all_of(leaves.begin(), leaves.end(),
                  [&](const LayerStrategy* one) { return same_layout(*one, *common); })) {
    for (ChoiceAxis& axis : mesh.axes) axis.name = axis.dims.front() == "batch" ? "dp" : "tp";
  }
  choice.axes = mesh.axes;
  choice.sharded = common->sharded;
  choice.recompute = common->recompute;
  if (std::all_of(leaves.begin(), leaves.end(), [&](const auto* one) { return *one == *common; }))
    return;
  for (const LayerStrategy* one : leaves) {
    UnitChoice own;
    if (!same_layout(*one, *common)) own.dims = mesh.dims(*one);
    if (one->sharded != common->sharded) own.sharded = one->sharded;
    if (one->recompute != common->recompute) own.recompute = one->recompute;
    choice.units.push_back(std::move(own));
  }
}

}  // namespace tessera
