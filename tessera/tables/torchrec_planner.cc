#include "tessera/tables/torchrec_planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

namespace tessera::tables {
namespace {

bool allowed(const std::vector<std::string>& names, std::string_view name) {
  return names.empty() || std::find(names.begin(), names.end(), name) != names.end();
}

// Cuts `total` rows or columns into blocks of `size` and returns first index and length of each.
// The last block may be smaller.
std::vector<std::pair<int64_t, int64_t>> blocks(int64_t total, int64_t size) {
  std::vector<std::pair<int64_t, int64_t>> out;
  for (int64_t first = 0; first < total; first += size) {
    out.emplace_back(first, std::min(size, total - first));
  }
  return out;
}

std::vector<Piece> pieces_of(const Piece& whole, int devices, int64_t a_node, int64_t width) {
  std::vector<Piece> out;
  const auto rows_over = [&](const Piece& piece, int64_t parts) {
    for (const auto& [first, rows] : blocks(whole.rows, (whole.rows + parts - 1) / parts)) {
      Piece next = piece;
      next.first_row = first;
      next.rows = rows;
      next.share = 1.0 / static_cast<double>(parts);
      out.push_back(next);
    }
  };
  const auto columns = blocks(whole.columns, width);
  const auto column = [&](const std::pair<int64_t, int64_t>& block) {
    Piece next = whole;
    next.first_column = block.first;
    next.columns = block.second;
    return next;
  };
  switch (whole.kind) {
    case Sharding::kTable: return {whole};
    case Sharding::kReplicated: {
      Piece replica = whole;
      replica.share = 1.0 / devices;
      return std::vector<Piece>(static_cast<size_t>(devices), replica);
    }
    case Sharding::kColumns:
    case Sharding::kTableColumns:
      if (columns.size() < 2) return {};
      for (const auto& block : columns) out.push_back(column(block));
      return out;
    case Sharding::kRows: rows_over(whole, devices); return out;
    case Sharding::kTableRows: rows_over(whole, a_node); return out;
    case Sharding::kGrid:
      if (columns.size() < 2) return {};
      for (const auto& block : columns) rows_over(column(block), a_node);
      return out;
  }
  return out;
}

// The state of devices while pieces are placed.
class TorchrecDevices {
 public:
  TorchrecDevices(int devices, int64_t a_node, int64_t hbm, int64_t ddr)
      : ms_(static_cast<size_t>(devices), 0.0),
        left_(static_cast<size_t>(devices), TorchRecBytes{hbm, ddr}),
        at_(static_cast<size_t>(devices)),
        a_node_(static_cast<size_t>(a_node)) {}

  size_t count() const { return ms_.size(); }
  size_t nodes() const { return (count() + a_node_ - 1) / a_node_; }
  // Returns the devices first .. last - 1, those with the least time first.
  std::vector<size_t> order(size_t first, size_t last) const {
    std::vector<size_t> out(last - first);
    std::iota(out.begin(), out.end(), first);
    std::sort(out.begin(), out.end(), [&](size_t a, size_t b) {
      return std::tuple(ms_[a], a % a_node_, a) < std::tuple(ms_[b], b % a_node_, b);
    });
    return out;
  }
  std::vector<size_t> nodes_by_ms() const {
    std::vector<double> sums(nodes(), 0.0);
    for (size_t device = 0; device < count(); ++device) sums[device / a_node_] += ms_[device];
    std::vector<size_t> out(nodes());
    std::iota(out.begin(), out.end(), size_t{0});
    std::stable_sort(out.begin(), out.end(), [&](size_t a, size_t b) { return sums[a] < sums[b]; });
    return out;
  }
  std::pair<size_t, size_t> range(size_t node) const {
    return {node * a_node_, std::min(count(), (node + 1) * a_node_)};
  }
  bool put(const TorchRecOption& option, size_t piece, size_t device) {
    const TorchRecBytes& bytes = option.piece_bytes[piece];
    if (bytes.hbm > left_[device].hbm || bytes.ddr > left_[device].ddr) return false;
    left_[device].hbm -= bytes.hbm;
    left_[device].ddr -= bytes.ddr;
    ms_[device] += option.piece_ms[piece];
    at_[device].push_back(option.pieces[piece]);
    return true;
  }
  bool put_first(const TorchRecOption& option, size_t piece, size_t first, size_t last) {
    for (const size_t device : order(first, last)) {
      if (put(option, piece, device)) return true;
    }
    return false;
  }
  // Puts pieces `first` to `last` of the option on one node: blocks of rows on one device each,
  // columns on devices where they fit.
  bool put_on_node(const TorchRecOption& option, size_t first, size_t last) {
    for (const size_t node : nodes_by_ms()) {
      TorchrecDevices copy = *this;
      const auto [begin, end] = range(node);
      bool good = true;
      for (size_t i = first; i < last && good; ++i) {
        if (option.kind == Sharding::kTableColumns) {
          good = copy.put_first(option, i, begin, end);
        } else {
          good = begin + (i - first) < end && copy.put(option, i, begin + (i - first));
        }
      }
      if (good) {
        *this = std::move(copy);
        return true;
      }
    }
    return false;
  }

  Partition result(int64_t hbm) const {
    Partition out;
    out.found = true;
    for (size_t device = 0; device < count(); ++device) {
      out.ms = std::max(out.ms, ms_[device]);
      out.most_bytes = std::max(out.most_bytes, hbm - left_[device].hbm);
      for (const Piece& piece : at_[device]) {
        out.placement.push_back({piece, static_cast<int>(device)});
      }
    }
    return out;
  }

 private:
  std::vector<double> ms_;
  std::vector<TorchRecBytes> left_;
  std::vector<std::vector<Piece>> at_;
  size_t a_node_;
};

bool put_option(const TorchRecOption& option, TorchrecDevices& devices) {
  switch (option.kind) {
    case Sharding::kTable:
    case Sharding::kColumns:
      for (size_t i = 0; i < option.pieces.size(); ++i) {
        if (!devices.put_first(option, i, 0, devices.count())) return false;
      }
      return true;
    case Sharding::kRows:
    case Sharding::kReplicated:
      for (size_t i = 0; i < option.pieces.size(); ++i) {
        if (!devices.put(option, i, i)) return false;
      }
      return true;
    case Sharding::kTableRows:
    case Sharding::kTableColumns: return devices.put_on_node(option, 0, option.pieces.size());
    case Sharding::kGrid: {
      for (size_t first = 0; first < option.pieces.size();) {
        size_t last = first + 1;
        while (last < option.pieces.size() &&
               option.pieces[last].first_column == option.pieces[first].first_column) {
          ++last;
        }
        if (!devices.put_on_node(option, first, last)) return false;
        first = last;
      }
      return true;
    }
  }
  return false;
}

}  // namespace

Options enumerate_options(const Problem& problem, const TorchRecEstimator& estimator) {
  const bool own = dynamic_cast<const TorchRecEstimator*>(problem.cost) != nullptr;
  const int64_t a_node = estimator.devices_a_node(problem.devices);
  Options out(problem.tables.size());
  for (size_t t = 0; t < problem.tables.size(); ++t) {
    const Table& table = problem.tables[t];
    for (size_t k = 0; k < sharding_names().size(); ++k) {
      const auto kind = static_cast<Sharding>(k);
      if (!allowed(table.kinds, sharding_name(kind))) continue;
      if (!problem.cost->prices(kind)) continue;
      for (size_t n = 0; n < kernel_names().size(); ++n) {
        const auto kernel = static_cast<Kernel>(n);
        // The dense kernel is for replicated tables only, because these are dense parameters.
        const bool dense = kernel == Kernel::kDense;
        if (!own && kernel != Kernel::kFused) continue;
        if (own && dense != (kind == Sharding::kReplicated)) continue;
        if (!allowed(table.kernels, kernel_name(kernel))) continue;
        TorchRecOption option;
        option.table = t;
        option.kind = kind;
        option.kernel = kernel;
        Piece whole = Piece::whole(t, table);
        whole.kind = kind;
        whole.kernel = kernel;
        option.pieces =
            pieces_of(whole, problem.devices, a_node, estimator.constants().least_columns);
        if (option.pieces.empty()) continue;
        for (const Piece& piece : option.pieces) {
          const double ms = estimator.perf(table, piece, problem.devices).total();
          const TorchRecBytes bytes =
              estimator.storage(table, piece, problem.devices, problem.optimizer);
          option.piece_ms.push_back(ms);
          option.piece_bytes.push_back(bytes);
          option.most_ms = std::max(option.most_ms, ms);
          option.sum_ms += ms;
          option.bytes.hbm += bytes.hbm;
          option.bytes.ddr += bytes.ddr;
        }
        out[t].push_back(std::move(option));
      }
    }
  }
  return out;
}

std::vector<Proposal> propose_grid(const Options& options) {
  int64_t count = 1;
  for (const auto& of_table : options) {
    count *= static_cast<int64_t>(of_table.size());
    if (count > kMostGridProposals) return {};
  }
  std::vector<Proposal> out;
  Proposal proposal(options.size(), 0);
  for (int64_t i = 0; i < count; ++i) {
    out.push_back(proposal);
    for (size_t t = 0; t < options.size(); ++t) {
      if (++proposal[t] < options[t].size()) break;
      proposal[t] = 0;
    }
  }
  return out;
}

std::vector<Proposal> propose_greedy(const Options& options, bool by_sum) {
  // The options of each table from the fastest to the slowest, and the position that the proposal
  // has reached.
  std::vector<Proposal> ranked;
  for (const auto& of_table : options) {
    Proposal order(of_table.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return by_sum ? of_table[a].sum_ms < of_table[b].sum_ms
                    : of_table[a].most_ms < of_table[b].most_ms;
    });
    ranked.push_back(std::move(order));
  }
  std::vector<size_t> at(options.size(), 0);
  std::vector<Proposal> out;
  while (true) {
    Proposal proposal;
    for (size_t t = 0; t < options.size(); ++t) proposal.push_back(ranked[t][at[t]]);
    out.push_back(proposal);
    size_t largest = options.size();
    for (size_t t = 0; t < options.size(); ++t) {
      if (at[t] + 1 == ranked[t].size()) continue;
      const auto bytes = [&](size_t table) { return options[table][proposal[table]].bytes.hbm; };
      if (largest == options.size() || bytes(t) > bytes(largest)) largest = t;
    }
    if (largest == options.size()) return out;
    ++at[largest];
  }
}

std::vector<Proposal> propose_uniform(const Options& options) {
  std::vector<Proposal> out;
  std::set<std::pair<Sharding, Kernel>> sorts;
  for (const auto& of_table : options) {
    for (const TorchRecOption& option : of_table) sorts.emplace(option.kind, option.kernel);
  }
  for (const auto& [kind, kernel] : sorts) {
    Proposal proposal;
    for (const auto& of_table : options) {
      for (size_t i = 0; i < of_table.size(); ++i) {
        if (of_table[i].kind == kind && of_table[i].kernel == kernel) proposal.push_back(i);
      }
    }
    if (proposal.size() == options.size()) out.push_back(std::move(proposal));
  }
  return out;
}

std::vector<Proposal> propose_by_memory(const Options& options, int devices, int64_t memory_bytes,
                                        int64_t bins) {
  const auto all = static_cast<size_t>(bins * devices);
  const double bin = static_cast<double>(memory_bytes) * devices / static_cast<double>(all);
  constexpr double kNever = std::numeric_limits<double>::infinity();
  if (bin <= 0) return {};
  // least[n] is the least time of the tables so far in exactly n bins of memory.
  std::vector<double> least(all + 1, kNever);
  least[0] = 0;
  std::vector<std::vector<std::pair<size_t, size_t>>>
      chosen;  // by table and n: option, bins before
  for (const auto& of_table : options) {
    std::vector<double> next(all + 1, kNever);
    auto& how = chosen.emplace_back(all + 1);
    for (size_t i = 0; i < of_table.size(); ++i) {
      const double share = static_cast<double>(of_table[i].bytes.hbm) / bin;
      if (share > static_cast<double>(all)) continue;
      const auto need = static_cast<size_t>(std::llround(share));
      for (size_t before = 0; before + need <= all; ++before) {
        const double ms = least[before] + of_table[i].sum_ms;
        if (ms < next[before + need]) {
          next[before + need] = ms;
          how[before + need] = {i, before};
        }
      }
    }
    least = std::move(next);
  }
  std::set<Proposal> seen;
  std::vector<Proposal> out;
  for (size_t n = 0; n <= all; ++n) {
    if (least[n] == kNever) continue;
    Proposal proposal(options.size(), 0);
    size_t at = n;
    for (size_t t = options.size(); t-- > 0;) std::tie(proposal[t], at) = chosen[t][at];
    if (seen.insert(proposal).second) out.push_back(std::move(proposal));
  }
  return out;
}

Partition partition_greedy(const Options& options, const Proposal& proposal, int devices,
                           int64_t devices_a_node, int64_t hbm_bytes, int64_t ddr_bytes) {
  TorchrecDevices all(devices, devices_a_node, hbm_bytes, ddr_bytes);
  std::vector<const TorchRecOption*> uniform, others;
  for (size_t t = 0; t < options.size(); ++t) {
    const TorchRecOption& option = options[t][proposal[t]];
    const bool everywhere = option.kind == Sharding::kRows || option.kind == Sharding::kReplicated;
    (everywhere ? uniform : others).push_back(&option);
  }
  std::stable_sort(others.begin(), others.end(), [](const auto* a, const auto* b) {
    return a->bytes.hbm + a->bytes.ddr > b->bytes.hbm + b->bytes.ddr;
  });
  uniform.insert(uniform.end(), others.begin(), others.end());
  for (const TorchRecOption* option : uniform) {
    if (!put_option(*option, all)) return {};
  }
  return all.result(hbm_bytes);
}

Partition partition_balanced(const Options& options, const Proposal& proposal, int devices,
                             int64_t devices_a_node, int64_t hbm_bytes, int64_t ddr_bytes) {
  const auto with = [&](int64_t limit) {
    return partition_greedy(options, proposal, devices, devices_a_node, limit, ddr_bytes);
  };
  Partition best = with(hbm_bytes);
  if (!best.found) return best;
  const double most_ms = best.ms * 1.02;
  int64_t bytes = 0;
  for (size_t t = 0; t < options.size(); ++t) bytes += options[t][proposal[t]].bytes.hbm;
  int64_t low = bytes / devices, high = best.most_bytes;
  for (int i = 0; i < 10 && low < high; ++i) {
    const int64_t limit = low + (high - low) / 2;
    Partition found = with(limit);
    if (found.found && found.ms <= most_ms) {
      high = std::min(limit, found.most_bytes);
      best = std::move(found);
    } else {
      low = limit + 1;
    }
  }
  return best;
}

Answer torchrec_plan(const Problem& problem) {
  const auto* own = dynamic_cast<const TorchRecEstimator*>(problem.cost);
  const TorchRecEstimator standard;
  const TorchRecEstimator& estimator = own != nullptr ? *own : standard;
  const int64_t a_node = estimator.devices_a_node(problem.devices);
  const int64_t hbm = estimator.budget(problem.tables, problem.memory_bytes);
  const int64_t ddr = estimator.constants().ddr_bytes;
  const Options options = enumerate_options(problem, estimator);
  for (size_t t = 0; t < options.size(); ++t) {
    if (options[t].empty()) {
      return not_found(
          problem, 0,
          fmt::format("table '{}' allows no kind of sharding with a kernel that is known",
                      problem.tables[t].name));
    }
  }
  std::vector<Proposal> proposals = propose_grid(options);
  for (auto& more : {propose_greedy(options, false), propose_greedy(options, true),
                     propose_uniform(options), propose_by_memory(options, problem.devices, hbm)}) {
    proposals.insert(proposals.end(), more.begin(), more.end());
  }
  std::set<Proposal> seen;
  Partition best;
  const Proposal* chosen = nullptr;
  for (const Proposal& proposal : proposals) {
    if (!seen.insert(proposal).second) continue;
    Partition found = partition_greedy(options, proposal, problem.devices, a_node, hbm, ddr);
    if (found.found && (!best.found || found.ms < best.ms)) {
      best = std::move(found);
      chosen = &proposal;
    }
  }
  const auto searched = static_cast<int64_t>(seen.size());
  if (chosen == nullptr) return not_found(problem, searched, "no proposal could be partitioned");
  best = partition_balanced(options, *chosen, problem.devices, a_node, hbm, ddr);
  return answer_with(problem, std::move(best.placement), searched,
                     fmt::format("{} proposals", searched));
}

}  // namespace tessera::tables
