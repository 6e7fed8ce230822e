#include "tessera/planners/unit_cuts.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "tessera/base/infinity.h"
#include "tessera/planners/unit_rows.h"
#include "tessera/search/choices/dim_lists.h"

namespace tessera {
namespace {

// Most selected lists without the batch, each of which makes the row of units faster.
constexpr size_t kMostLists = 3;
// Another list is selected if with it the row takes at most this share of the time.
constexpr double kOtherListGain = .997;
// The list that holds the least is selected if it takes at most this many times the time.
constexpr double kMostLoss = 1.05;
// Largest number of sequences that is tried for the smallest micro-batch.
constexpr int64_t kMostLeast = 64;

std::vector<size_t> all_of(const CutSet& set) {
  std::vector<size_t> out(set.cuts.size());
  std::iota(out.begin(), out.end(), size_t{0});
  return out;
}

}  // namespace

UnitCuts::UnitCuts(PlanSearch& search)
    : search_(search),
      collectives_(*search.question().cluster, search.question().options.style),
      replica_costs_(*search.question().cluster, search.question().options.style, collectives_) {
  find_borders();
  const int64_t batch = search.question().batch;
  const int64_t most = std::min(batch, kMostLeast);
  while (2 * least_ <= most && !search.pricer().price({{}, least_, "none"})) least_ *= 2;
}

void UnitCuts::find_borders() {
  const Fold& fold = search_.fold();
  const Graph& graph = fold.graph;
  borders_.resize(static_cast<size_t>(fold.folded_units));
  std::vector<int> last_reader(graph.tensors().size(), -1);
  for (const Op& op : graph.ops()) {
    for (const TensorId input : op.inputs) {
      int& last = last_reader[input.index()];
      last = std::max(last, fold.unit_of[op.id.index()]);
    }
  }
  const PlanQuestion& question = search_.question();
  for (const Tensor& tensor : graph.tensors()) {
    if (!tensor.producer.valid()) continue;
    const double bytes = static_cast<double>(tensor.elements() * dtype_bytes(question.compute)) /
                         static_cast<double>(question.batch);
    for (int u = fold.unit_of[tensor.producer.index()]; u < last_reader[tensor.id.index()]; ++u)
      borders_[static_cast<size_t>(u)].push_back({tensor.id, bytes});
  }
}

namespace {

// Prices changes of layout over one axis, both passes together. Prices are cached.
class AxisMoves {
 public:
  AxisMoves(const CollectiveCosts& collectives, const Cluster& cluster, int64_t size,
            int64_t stride)
      : collectives_(collectives), size_(size) {
    std::vector<int64_t> devices;
    for (int64_t i = 0; i < size; ++i) devices.push_back(i * stride);
    group_ = place_group(cluster, devices, std::min(stride, cluster.type_of(0).devices));
  }

  double change_s(const std::string& before, const std::string& after, double bytes) {
    if (before == after || size_ == 1) return 0;
    const bool is_whole = after.empty() || after == kParts;
    if (before == kParts) {
      return is_whole ? moves(CollectiveKind::kAllReduce, bytes)
                      : moves(CollectiveKind::kReduceScatter, bytes) +
                            moves(CollectiveKind::kAllGather, bytes);
    }
    if (before.empty() && is_whole) return 0;
    // One pass takes a slice, which is free; the other pass gathers.
    if (before.empty() || is_whole) return moves(CollectiveKind::kAllGather, bytes);
    return 2 * moves(CollectiveKind::kAllToAll, bytes / static_cast<double>(size_));
  }

 private:
  double moves(CollectiveKind kind, double bytes) {
    const auto [it, is_new] = known_.try_emplace({kind, static_cast<int64_t>(bytes)}, 0.0);
    if (is_new) it->second = collectives_.collective(kind, group_, it->first.second).seconds();
    return it->second;
  }

  const CollectiveCosts& collectives_;
  int64_t size_;
  GroupPlacement group_;
  std::map<std::pair<CollectiveKind, int64_t>, double> known_;
};

}  // namespace

void UnitCuts::fill_changes(CutSet& set) const {
  const size_t n = set.cuts.size();
  const Graph& graph = search_.fold().graph;
  set.change_s.assign(borders_.size(), std::vector(n, std::vector<double>(n, 0)));
  if (n < 2) return;
  const size_t axes = set.cuts.front().axes.size();
  std::vector<AxisMoves> moves;
  for (size_t a = 0; a < axes; ++a) {
    int64_t stride = 1;
    for (size_t i = a + 1; i < axes; ++i) stride *= set.cuts.front().axes[i].size;
    moves.emplace_back(collectives_, *search_.question().cluster, set.cuts.front().axes[a].size,
                       stride);
  }
  for (size_t unit = 0; unit < borders_.size(); ++unit) {
    for (const Border& border : borders_[unit]) {
      const double bytes = border.bytes * static_cast<double>(set.sequences);
      for (size_t a = 0; a < axes; ++a) {
        std::vector<std::string> layouts;
        for (const UnitCut& cut : set.cuts)
          layouts.push_back(layout_of(graph, border.tensor, cut.axes[a]));
        for (size_t from = 0; from < n; ++from) {
          for (size_t to = 0; to < n; ++to) {
            set.change_s[unit][from][to] += moves[a].change_s(layouts[from], layouts[to], bytes);
          }
        }
      }
    }
  }
}

CutSet UnitCuts::priced(const std::array<int64_t, 2>& sizes, int64_t sequences,
                        const std::vector<std::vector<ChoiceAxis>>& offered,
                        const std::string& recompute, bool passes_only) {
  CutSet set{sizes, sequences, {}, {}};
  for (const auto& axes : offered) {
    int64_t pieces = 1;
    for (const ChoiceAxis& axis : axes) pieces *= has(axis.dims, "batch") ? axis.size : 1;
    if (sequences % pieces != 0) continue;
    const auto prices = search_.pricer().price({axes, sequences, recompute, passes_only});
    if (prices) {
      set.cuts.push_back({axes, *prices});
    } else {
      refusal_ = prices.error().message;
    }
  }
  fill_changes(set);
  return set;
}

const CutSet& UnitCuts::candidates(std::array<int64_t, 2> sizes, int64_t sequences,
                                   const std::string& recompute) {
  const auto [it, is_new] = known_.try_emplace({sizes, sequences, recompute});
  if (!is_new) return it->second;
  std::vector<std::vector<ChoiceAxis>> offered;
  if (sizes[0] * sizes[1] == 1) {
    offered.emplace_back();
  } else if (sizes[0] == 1) {
    for (const DimList& list : lists_) offered.push_back(inner_axes(sizes[1], list));
  } else {
    for (const DimPair& pair : pairs_) offered.push_back(inner_axes(sizes[0], sizes[1], pair));
  }
  it->second = priced(sizes, sequences, offered, recompute, false);
  return it->second;
}

double UnitCuts::cost_s(const UnitPrice& unit, const CutWeights& weights) const {
  return unit.forward_s + unit.backward_s + weights.once * unit.once_s +
         weights.seconds_per_byte * unit.gradient_bytes;
}

std::vector<UnitRange> UnitCuts::ranges(const CutSet& set, size_t first, size_t last,
                                        const CutWeights& weights,
                                        const std::vector<size_t>& of) const {
  const std::vector<FoldUnit>& units = search_.fold().units;
  const std::vector<size_t> allowed = of.empty() ? all_of(set) : of;
  std::vector<UnitRange> now(allowed.size()), before;
  std::vector<UnitRange> out = {{}};
  for (size_t u = first; u < last; ++u) {
    before.swap(now);
    now.assign(allowed.size(), {});
    const auto stand_in = static_cast<size_t>(units[u].stand_in);
    for (size_t c = 0; c < allowed.size(); ++c) {
      const UnitPrices& prices = *set.cuts[allowed[c]].prices;
      size_t best = 0;
      double least = kInfinity, change = 0;
      for (size_t p = 0; p < allowed.size() && u > first; ++p) {
        const double changes =
            set.change_s[static_cast<size_t>(units[u - 1].stand_in)][allowed[p]][allowed[c]];
        if (before[p].cost_s + changes >= least) continue;
        least = before[p].cost_s + changes;
        change = changes;
        best = p;
      }
      if (u > first) now[c] = before[best];
      UnitRange& range = now[c];
      const UnitPrice& own = prices.units[stand_in];
      range.sum = sum_of(range.sum, own);
      range.change_s += change;
      range.cost_s += change + cost_s(own, weights);
      range.alive_bytes = std::max(range.alive_bytes, prices.transient_bytes);
      range.overhead_bytes = std::max(range.overhead_bytes, prices.overhead_bytes);
      ++range.units;
    }
    if (now.empty()) break;
    out.push_back(*std::min_element(
        now.begin(), now.end(), [](const auto& a, const auto& b) { return a.cost_s < b.cost_s; }));
  }
  return out;
}

std::vector<size_t> UnitCuts::chosen(const CutSet& set, size_t first, size_t last,
                                     const CutWeights& weights) const {
  const std::vector<FoldUnit>& units = search_.fold().units;
  const size_t n = set.cuts.size();
  std::vector<std::vector<size_t>> from(last - first, std::vector<size_t>(n));
  std::vector<double> cost(n, 0);
  for (size_t u = first; u < last; ++u) {
    std::vector<double> now(n, kInfinity);
    for (size_t c = 0; c < n; ++c) {
      const UnitPrice& own = set.cuts[c].prices->units[static_cast<size_t>(units[u].stand_in)];
      if (u == first) now[c] = cost_s(own, weights);
      for (size_t p = 0; p < n && u > first; ++p) {
        const double changes = set.change_s[static_cast<size_t>(units[u - 1].stand_in)][p][c];
        const double value = cost[p] + changes + cost_s(own, weights);
        if (value >= now[c]) continue;
        now[c] = value;
        from[u - first][c] = p;
      }
    }
    cost = std::move(now);
  }
  std::vector<size_t> out(last - first);
  auto at = static_cast<size_t>(std::min_element(cost.begin(), cost.end()) - cost.begin());
  for (size_t u = last; u-- > first;) {
    out[u - first] = at;
    at = from[u - first][at];
  }
  return out;
}

std::vector<DimList> UnitCuts::select(const std::vector<DimList>& found, const CutSet& all) const {
  const CutWeights weights{1, 0};
  const auto chain = [&](const std::vector<size_t>& of) {
    return ranges(all, 0, search_.fold().units.size(), weights, of).back();
  };
  const auto list_of = [&](size_t c) -> const DimList& { return all.cuts[c].axes.front().dims; };
  const DimList batch = {"batch"};
  // First selects lists without the batch, as long as another one makes the row of units faster.
  std::vector<size_t> taken;
  double best_s = kInfinity;
  while (taken.size() < kMostLists) {
    std::optional<size_t> next;
    double least = taken.empty() ? kInfinity : kOtherListGain * best_s;
    for (size_t c = 0; c < all.cuts.size(); ++c) {
      if (has(list_of(c), "batch") || std::find(taken.begin(), taken.end(), c) != taken.end())
        continue;
      std::vector<size_t> with = taken;
      with.push_back(c);
      const double time = chain(with).cost_s;
      if (time >= least) continue;
      least = time;
      next = c;
    }
    if (!next) break;
    taken.push_back(*next);
    best_s = least;
  }
  // Then selects the list that holds the fewest activations and is nearly as fast, the fastest list
  // with the batch in it, and the batch alone if it makes some units faster and others not.
  std::optional<size_t> smallest, mixed, plain;
  for (size_t c = 0; c < all.cuts.size(); ++c) {
    const bool is_found = std::find(found.begin(), found.end(), list_of(c)) != found.end();
    const UnitRange own = chain({c});
    if (list_of(c) == batch) {
      plain = c;
    } else if (!is_found) {
      continue;
    } else if (has(list_of(c), "batch")) {
      if (!mixed || own.cost_s < chain({*mixed}).cost_s) mixed = c;
    } else if (!taken.empty() && own.cost_s < kMostLoss * chain({taken.front()}).cost_s &&
               (!smallest || own.sum.activation_bytes < chain({*smallest}).sum.activation_bytes)) {
      smallest = c;
    }
  }
  for (const auto& more : {smallest, mixed}) {
    if (more && std::find(taken.begin(), taken.end(), *more) == taken.end()) taken.push_back(*more);
  }
  if (plain) {
    std::vector<size_t> with = taken;
    with.push_back(*plain);
    const double apart =
        std::min(chain({*plain}).cost_s, taken.empty() ? kInfinity : chain(taken).cost_s);
    if (chain(with).cost_s < kOtherListGain * apart) taken = with;
  }
  std::vector<DimList> out;
  for (const size_t c : taken) out.push_back(list_of(c));
  return out;
}

void UnitCuts::find(int64_t size, bool pairs) {
  const Fold& fold = search_.fold();
  DimListSearch search(fold, search_.pricer(), dims_to_cut(fold.graph),
                       search_.question().progress);
  const std::vector<DimList> found = search.find_lists(size, least_);
  std::vector<DimList> pool = found;
  const auto add = [&](const DimList& list) {
    if (std::find(pool.begin(), pool.end(), list) == pool.end()) pool.push_back(list);
  };
  for (const std::string& dim : dims_to_cut(fold.graph)) add({dim});
  add({"batch"});
  std::vector<std::vector<ChoiceAxis>> offered;
  std::set<std::string> seen;
  for (const DimList& list : pool) {
    auto axes = inner_axes(size, list);
    if (seen.insert(cuts_of(fold.graph, axes)).second) offered.push_back(std::move(axes));
  }
  const CutSet all = priced({1, size}, least_ * size, offered, "none", true);
  set_lists(select(found, all),
            pairs ? search.find_pairs(found, 2, 2, least_) : std::vector<DimPair>{});
  if (lists_.empty() && !search.last_refusal().empty()) refusal_ = search.last_refusal();
}

double UnitCuts::gradient_rate(int64_t replicas, int64_t inner) const {
  constexpr int64_t kBytes = 256 << 20;
  return replica_costs_.seconds_to_sum(replicas, inner, kBytes) / kBytes;
}

void UnitCuts::set_lists(std::vector<DimList> lists, std::vector<DimPair> pairs) {
  lists_ = std::move(lists);
  pairs_ = std::move(pairs);
  known_.clear();
}

}  // namespace tessera
