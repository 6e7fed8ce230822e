#include "tessera/search/own_dims.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

namespace tessera {
namespace {

constexpr double kGainOfOwnDims =
    .995;  // an edit is worth a program if the units take at most this share of their time
constexpr size_t kMostOwnDims = 4;  // most edits of one candidate
const char* const kBatchDim = "batch";

// Returns the choice with at least one axis inside a stage, and without such axes of size 1. If the
// choice has replicas only, they become that axis, unless their number is fixed. Returns nothing if
// the choice has units with own dims, slices, meshes by stage or an order of units.
std::optional<Choice> with_inner_axes(const Choice& from, const PlanQuestion& question) {
  const bool is_plain = from.slices.empty() && from.stage_axes.empty() && from.unit_order.empty() &&
                        !from.axes.empty() &&
                        std::all_of(from.units.begin(), from.units.end(),
                                    [](const UnitChoice& unit) { return unit.dims.empty(); });
  if (!is_plain) return std::nullopt;
  Choice out = from;
  const bool has_inner = std::any_of(out.axes.begin() + 1, out.axes.end(),
                                     [](const ChoiceAxis& axis) { return axis.size > 1; });
  if (has_inner) {
    const auto unused = [](const ChoiceAxis& axis) { return axis.size == 1; };
    out.axes.erase(std::remove_if(out.axes.begin() + 1, out.axes.end(), unused), out.axes.end());
    return out;
  }
  const int64_t replicas = out.axes.front().size;
  const bool is_fixed = question.fixed.contains("dp") || question.fixed.contains("tp");
  if (replicas == 1 || out.replicas_apart || is_fixed) return std::nullopt;
  out.axes = {{out.axes.front().name, 1, {kBatchDim}}};
  out.axes.push_back(inner_axes(replicas, {kBatchDim}).front());
  return out;
}

// Returns whether the two lists of axes cut all ops of the unit alike.
bool are_cut_alike(const Graph& forward, const FoldUnit& unit, const std::vector<ChoiceAxis>& a,
                   const std::vector<ChoiceAxis>& b) {
  return std::all_of(unit.ops.begin(), unit.ops.end(), [&](OpId id) {
    for (size_t i = 0; i < a.size(); ++i) {
      if (cut_of(forward.op(id), a[i]) != cut_of(forward.op(id), b[i])) return false;
    }
    return true;
  });
}

template <typename Value>
void add_new(std::vector<Value>& values, const Value& value) {
  if (std::find(values.begin(), values.end(), value) == values.end()) values.push_back(value);
}

}  // namespace

OwnDims::OwnDims(PlanSearch& search, Ranking& ranking)
    : search_(search), ranking_(ranking), cuts_(search) {}

void OwnDims::offer(const std::vector<ChoiceAxis>& inner, const Space& space) {
  std::vector<DimList> lists = space.lists;
  for (const std::string& dim : dims_to_cut(search_.fold().graph)) add_new(lists, {dim});
  add_new(lists, {kBatchDim});
  add_new(lists, inner.back().dims);
  std::vector<DimPair> pairs;
  if (inner.size() == 2) {
    pairs = space.pairs;
    add_new(pairs, {inner.front().dims, inner.back().dims});
    for (const DimList& list : lists) {
      add_new(pairs, {inner.front().dims, list});
      add_new(pairs, {list, inner.back().dims});
    }
  }
  // Lists that cut every op alike have one price.
  std::set<std::string> seen;
  const auto is_known = [&](const std::vector<ChoiceAxis>& axes) {
    return !seen.insert(cuts_of(search_.fold().graph, axes)).second;
  };
  std::erase_if(lists, [&](const DimList& list) {
    return list != inner.back().dims && is_known(inner_axes(2, list));
  });
  std::erase_if(pairs, [&](const DimPair& pair) { return is_known(inner_axes(2, 2, pair)); });
  if (lists != cuts_.lists() || pairs != cuts_.pairs())
    cuts_.set_lists(std::move(lists), std::move(pairs));
}

std::vector<PlanCandidate> OwnDims::edits(const PlanCandidate& from, const Space& space) {
  if (!from.call.empty()) return {};
  const std::optional<Choice> start = with_inner_axes(from.choice, search_.question());
  if (!start) return {};
  const std::vector<ChoiceAxis> inner(start->axes.begin() + 1, start->axes.end());
  if (inner.size() > 2) return {};
  offer(inner, space);
  const UnitQuestion asked = unit_question(*start, search_.question().batch);
  const CutSet& set =
      cuts_.candidates({inner.size() == 2 ? inner.front().size : 1, inner.back().size},
                       asked.sequences, start->recompute);
  const Graph& folded = search_.fold().graph;
  const auto usual = std::find_if(set.cuts.begin(), set.cuts.end(), [&](const UnitCut& cut) {
    return cuts_of(folded, cut.axes) == cuts_of(folded, inner);
  });
  if (usual == set.cuts.end()) return {};
  const auto usual_at = static_cast<size_t>(usual - set.cuts.begin());
  const std::vector<FoldUnit>& units = search_.fold().units;
  const double often = 1 / static_cast<double>(start->micro_batches);
  CutWeights weights{
      often, often * cuts_.gradient_rate(start->axes.front().size, set.sizes[0] * set.sizes[1])};
  const auto cost_of = [&](const std::vector<size_t>& of) {
    return cuts_.ranges(set, 0, units.size(), weights, of).back().cost_s;
  };
  const double plain_s = cost_of({usual_at});
  // The sets of lists that the chain program may choose from, with the cost of the result; the
  // cheapest first.
  std::vector<std::pair<double, std::vector<size_t>>> tried;
  for (size_t c = 0; c < set.cuts.size(); ++c) {
    if (c != usual_at) tried.push_back({cost_of({usual_at, c}), {usual_at, c}});
  }
  tried.push_back({cost_of({}), {}});
  std::stable_sort(tried.begin(), tried.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<PlanCandidate> out;
  for (const auto& [cost, of] : tried) {
    if (cost > kGainOfOwnDims * plain_s || out.size() == kMostOwnDims) break;
    const std::vector<size_t> chosen = cuts_.chosen(set, 0, units.size(), weights, of);
    PlanCandidate edit;
    edit.choice = *start;
    edit.choice.units.resize(units.size());
    double change_s = 0;
    for (size_t u = 0; u < units.size(); ++u) {
      if (u > 0) {
        change_s +=
            set.change_s[static_cast<size_t>(units[u - 1].stand_in)][chosen[u - 1]][chosen[u]];
      }
      const std::vector<ChoiceAxis>& axes = set.cuts[chosen[u]].axes;
      if (are_cut_alike(search_.forward(), units[u], axes, inner)) continue;
      std::vector<DimList>& dims = edit.choice.units[u].dims;
      dims.push_back(start->axes.front().dims);
      for (const ChoiceAxis& axis : axes) dims.push_back(axis.dims);
    }
    const bool is_new = std::none_of(out.begin(), out.end(), [&](const PlanCandidate& other) {
      return other.choice == edit.choice;
    });
    if (!is_new || !ranking_.estimate_own(edit)) continue;
    edit.estimate.step_s +=
        static_cast<double>(start->micro_batches) * change_s / static_cast<double>(start->stages);
    out.push_back(std::move(edit));
  }
  return out;
}

}  // namespace tessera
