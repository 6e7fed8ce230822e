#include "tessera/search/choices/dim_lists.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "tessera/base/infinity.h"
#include "tessera/base/text.h"
#include "tessera/search/constants.h"

namespace tessera {
bool has(const DimList& list, const std::string& name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

bool has_rings(const DimList& list) {
  return std::any_of(list.begin(), list.end(),
                     [](const std::string& entry) { return !parse_entry(entry).travels.empty(); });
}

int64_t over_batch(const std::vector<ChoiceAxis>& axes) {
  int64_t out = 1;
  for (const ChoiceAxis& axis : axes) out *= has(axis.dims, "batch") ? axis.size : 1;
  return out;
}

std::vector<ChoiceAxis> inner_axes(int64_t size, const DimList& list) {
  if (size == 1) return {};
  return {{"tp", size, list}};
}

std::vector<ChoiceAxis> inner_axes(int64_t outer_size, int64_t inner_size, const DimPair& pair) {
  return {{"tp_outer", outer_size, pair.outer}, {"tp", inner_size, pair.inner}};
}

double passes_s(const UnitPrices& prices, const std::vector<int64_t>& counts) {
  double out = 0;
  for (size_t u = 0; u < counts.size(); ++u) {
    out +=
        static_cast<double>(counts[u]) * (prices.units[u].forward_s + prices.units[u].backward_s);
  }
  return out;
}

namespace {

double once_s(const UnitPrices& prices, const std::vector<int64_t>& counts) {
  double out = 0;
  for (size_t u = 0; u < counts.size(); ++u)
    out += static_cast<double>(counts[u]) * prices.units[u].once_s;
  return out;
}

// Returns the dims along which ops can be cut whose parameters have at least `share` of all
// parameters' elements. The dim `batch` is left out.
std::vector<std::string> dims_of_parameters(const Graph& forward, double share) {
  std::map<std::string, double> elements;
  double all = 0;
  std::vector<bool> seen(forward.tensors().size());
  for (const Op& op : forward.ops()) {
    for (const TensorId input : op.inputs) {
      const Tensor& tensor = forward.tensor(input);
      if (tensor.role != Role::kParameter || seen[input.index()]) continue;
      seen[input.index()] = true;
      const auto own = static_cast<double>(tensor.elements());
      all += own;
      for (const OpDim& dim : op.annotation.dims) {
        const ChoiceAxis axis{"tp", 2, {dim.name}};
        if (dim.name != "batch" && dim_to_cut(op, axis) == dim.name) elements[dim.name] += own;
      }
    }
  }
  std::vector<std::string> out;
  for (const auto& [name, own] : elements) {
    if (own >= share * all) out.push_back(name);
  }
  return out;
}

}  // namespace

double activations_bytes(const UnitPrices& prices, const std::vector<int64_t>& counts) {
  double out = 0;
  for (size_t u = 0; u < counts.size(); ++u)
    out += static_cast<double>(counts[u]) * prices.units[u].activation_bytes;
  return out;
}

double held_bytes(const UnitPrices& prices, const std::vector<int64_t>& counts) {
  double out = activations_bytes(prices, counts);
  for (size_t u = 0; u < counts.size(); ++u) {
    const UnitPrice& unit = prices.units[u];
    out += static_cast<double>(counts[u]) *
           (unit.parameter_bytes + std::max(unit.gradient_bytes, unit.gradient_buffer_bytes) +
            unit.state_bytes + unit.copy_bytes);
  }
  return out;
}

DimListSearch::DimListSearch(const Fold& fold, UnitPricer& pricer, std::vector<std::string> dims,
                             std::function<void(const std::string&)> progress)
    : fold_(fold),
      pricer_(pricer),
      progress_(std::move(progress)),
      counts_(fold.counts()),
      dims_(std::move(dims)) {}

std::optional<size_t> DimListSearch::price(const DimList& list, const AxesOf& axes,
                                           int64_t sequences) {
  const std::string cuts = cuts_of(fold_.graph, axes(list));
  for (size_t i = 0; i < tried_.size(); ++i) {
    if (tried_[i].cuts == cuts) return i;
  }
  const auto prices = pricer_.price({axes(list), sequences, "none", !counts_gradients_});
  if (!prices) {
    refusal_ = prices.error().message;
    return {};
  }
  const auto each = static_cast<double>(sequences);
  const double time_s =
      passes_s(**prices, counts_) + (counts_gradients_ ? once_s(**prices, counts_) : 0);
  tried_.push_back({list, cuts, time_s / each, held_bytes(**prices, counts_),
                    activations_bytes(**prices, counts_)});
  return tried_.size() - 1;
}

void DimListSearch::grow(const DimList& first, const AxesOf& axes, int64_t sequences, size_t beam,
                         double most_s) {
  tried_.clear();
  const auto start = price(first, axes, sequences);
  const double first_s = start ? tried_[*start].time_s : 0;
  std::vector<DimList> best_lists = {first};
  for (double best = 0; !best_lists.empty();) {
    for (const DimList& from : best_lists) {
      if (progress_) progress_(fmt::format("which dims to cut: [{}]", join(from, ",")));
      for (const std::string& dim : dims_) {
        if (has(from, dim)) continue;
        for (size_t at = 0; at <= from.size(); ++at) {
          DimList list = from;
          list.insert(list.begin() + static_cast<std::ptrdiff_t>(at), dim);
          price(list, axes, sequences);
        }
      }
    }
    std::stable_sort(tried_.begin(), tried_.end(),
                     [](const Tried& a, const Tried& b) { return a.time_s < b.time_s; });
    if (tried_.empty() || (best > 0 && tried_.front().time_s > kGain * best)) return;
    best = tried_.front().time_s;
    if (best > most_s || (one_dim_shows_ && best > (1 - kLittle) * first_s)) return;
    if (first.empty() && best > (1 - kLittle) * first_s) beam = 1;
    // The longest lists are those that this step made.
    size_t longest = 0;
    for (const DimList& one : best_lists) longest = std::max(longest, one.size() + 1);
    best_lists.clear();
    for (const Tried& one : tried_) {
      if (one.list.size() == longest && best_lists.size() < beam) best_lists.push_back(one.list);
    }
  }
}

// Appends dims that save memory. A dim at the end of a list cuts the ops that no earlier dim of the
// list cuts. Such a dim need not save time if it saves activations, because a pipeline holds the
// activations of many micro-batches.
DimList DimListSearch::save_memory(const DimList& list, const AxesOf& axes, int64_t sequences) {
  const auto start = price(list, axes, sequences);
  if (!start) return list;
  Tried best = tried_[*start];
  for (bool grows = true; grows;) {
    grows = false;
    const Tried from = best;
    for (const std::string& dim : dims_) {
      if (has(from.list, dim)) continue;
      DimList longer = from.list;
      longer.push_back(dim);
      const auto at = price(longer, axes, sequences);
      if (!at || tried_[*at].time_s > (1 + kLittle) * from.time_s ||
          tried_[*at].activation_bytes >= kGain * best.activation_bytes)
        continue;
      best = tried_[*at];
      grows = true;
    }
  }
  return best.list;
}

std::vector<DimList> DimListSearch::find_lists(int64_t size, int64_t sequences,
                                               bool one_dim_shows) {
  one_dim_shows_ = one_dim_shows;
  std::vector<DimList> out;
  const AxesOf axes = [size](const DimList& list) { return inner_axes(size, list); };
  const auto add = [&](const DimList& list) {
    if (std::find(out.begin(), out.end(), list) == out.end()) out.push_back(list);
  };
  const auto grow_and_keep = [&](const DimList& first, int64_t with_sequences, size_t most) {
    grow(first, axes, with_sequences, kFew, kInfinity);
    std::vector<DimList> kept;
    double least = 0;
    for (const Tried& one : tried_) {
      if (kept.size() == most) break;
      if (one.list.empty() || one.list == DimList{"batch"}) continue;  // replicas have an axis
      if (!kept.empty() && one.held_bytes >= kGain * least) continue;
      least = one.held_bytes;
      kept.push_back(one.list);
    }
    for (const DimList& list : kept) add(list);
    if (one_dim_shows) return;
    for (const DimList& list : kept) add(save_memory(list, axes, with_sequences));
  };
  grow_and_keep({}, sequences, 3);
  grow_and_keep({"batch"}, sequences * size, 2);
  for (const DimList& list : lists_for_gradients(axes, sequences * size)) add(list);
  return out;
}

std::vector<DimList> DimListSearch::lists_for_gradients(const AxesOf& axes, int64_t sequences) {
  const DimList replicas = {"batch"};
  const auto prices = pricer_.price({axes(replicas), sequences, "none"});
  if (!prices || once_s(**prices, counts_) <= passes_s(**prices, counts_)) return {};
  const std::vector<std::string> before = dims_;
  for (const std::string& dim : dims_of_parameters(fold_.graph, kLittle)) {
    if (!has(dims_, dim)) dims_.push_back(dim);
  }
  counts_gradients_ = true;
  grow(replicas, axes, sequences, kFew, kInfinity);
  counts_gradients_ = false;
  dims_ = before;
  std::vector<DimList> out;
  for (const Tried& one : tried_) {
    if (out.size() < 2 && one.list != replicas && has(one.list, "batch")) out.push_back(one.list);
  }
  return out;
}

DimListSearch::Single DimListSearch::of_one_axis(const std::vector<DimList>& lists, int64_t size,
                                                 int64_t sequences) {
  Single out;
  for (const DimList& list : lists) {
    const int64_t own = has(list, "batch") ? sequences * size : sequences;
    const auto prices = pricer_.price({inner_axes(size, list), own, "none", true});
    if (!prices) continue;
    const double time_s = passes_s(**prices, counts_) / static_cast<double>(own);
    const double bytes = activations_bytes(**prices, counts_) / static_cast<double>(own);
    if (out.time_s == 0 || time_s < out.time_s) out.time_s = time_s;
    if (out.bytes == 0 || bytes < out.bytes) out.bytes = bytes;
  }
  return out;
}

std::vector<DimPair> DimListSearch::find_pairs(const std::vector<DimList>& lists,
                                               int64_t outer_size, int64_t inner_size,
                                               int64_t sequences) {
  const auto [single_s, single_bytes] = of_one_axis(lists, outer_size * inner_size, sequences);
  std::vector<DimPair> out;
  size_t tried_lists = 0;
  for (const DimList& inner : lists) {
    if (has(inner, "batch") || tried_lists == kFew) continue;
    ++tried_lists;
    const AxesOf axes = [&](const DimList& list) {
      return inner_axes(outer_size, inner_size, DimPair{list, inner});
    };
    for (const DimList& first : {DimList{}, DimList{"batch"}}) {
      const int64_t own = first.empty() ? sequences : sequences * outer_size;
      // Skips an outer axis that would be too slow even with perfect speedup over its devices.
      tried_.clear();
      const auto start = price(first, axes, own);
      const double left = first.empty() ? 1 / static_cast<double>(outer_size) : 1 - kLittle;
      if (start && single_s > 0 && left * tried_[*start].time_s > (1 + kLittle) * single_s)
        continue;
      grow(first, axes, own, 1, single_s > 0 ? kFormulaErrs * single_s : kInfinity);
      const auto best = std::find_if(tried_.begin(), tried_.end(), [&](const Tried& one) {
        return !one.list.empty() && one.list != first && one.list != inner;
      });
      if (best == tried_.end()) continue;
      const bool is_faster = single_s == 0 || best->time_s < kGain * single_s;
      const bool is_smaller = best->time_s < (1 + kLittle) * single_s &&
                              best->activation_bytes / static_cast<double>(own) < .9 * single_bytes;
      if (!is_faster && !is_smaller) continue;
      const DimPair pair{best->list, inner};
      if (std::find(out.begin(), out.end(), pair) == out.end()) out.push_back(pair);
    }
  }
  return out;
}

std::vector<DimPair> DimListSearch::ring_pairs(const std::vector<DimList>& lists,
                                               int64_t outer_size, int64_t inner_size,
                                               int64_t sequences, double most_loss) {
  std::vector<DimPair> out;
  double single_s = 0;
  for (const std::string& ring : dims_) {
    const ListEntry entry = parse_entry(ring);
    if (entry.travels.empty()) continue;
    // The outer list is the ring and then its dim alone, so that all ops that have the dim are
    // cut by tokens. An inner list that cuts the tokens alone is skipped, because the ring does
    // the same.
    const DimList outer = {ring, std::string(entry.dim)};
    size_t inner_lists = 0;
    for (const DimList& inner : lists) {
      if (has(inner, "batch") || has_rings(inner) || inner == DimList{outer.back()} ||
          inner_lists == kFew)
        continue;
      ++inner_lists;
      const DimPair pair{outer, inner};
      const auto prices =
          pricer_.price({inner_axes(outer_size, inner_size, pair), sequences, "none", true});
      if (!prices) continue;
      if (single_s == 0) single_s = of_one_axis(lists, outer_size * inner_size, sequences).time_s;
      const double time_s = passes_s(**prices, counts_) / static_cast<double>(sequences);
      if (single_s == 0 || time_s <= most_loss * single_s) out.push_back(pair);
    }
  }
  return out;
}

}  // namespace tessera
