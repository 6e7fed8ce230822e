#include "tessera/tables/baselines.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <tuple>

#include "tessera/base/philox.h"

namespace tessera::tables {
namespace {

template <class Value>
std::vector<size_t> descending(const std::vector<Value>& values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return values[a] > values[b]; });
  return order;
}

std::vector<int64_t> bytes_of(const Problem& problem) {
  std::vector<int64_t> out;
  Coder coder(problem);
  for (size_t i = 0; i < problem.tables.size(); ++i) {
    out.push_back(coder(Piece::whole(i, problem.tables[i]))->bytes);
  }
  return out;
}

// Packs pieces by a depth-first search, the largest piece first. If several devices have equally
// many bytes in use, only one of them is tried.
class Packing {
 public:
  Packing(const std::vector<int64_t>& bytes, int devices, int64_t memory, int64_t most)
      : bytes_(bytes),
        order_(descending(bytes)),
        left_(static_cast<size_t>(devices), memory),
        at_(bytes.size(), -1),
        most_(most) {
    rest_.assign(bytes.size() + 1, 0);
    for (size_t i = bytes.size(); i-- > 0;) rest_[i] = rest_[i + 1] + bytes[order_[i]];
  }
  bool search(size_t depth) {
    if (depth == order_.size()) return true;
    if (++steps_ > most_) return false;
    const size_t item = order_[depth];
    const int64_t free = std::accumulate(left_.begin(), left_.end(), int64_t{0});
    if (free < rest_[depth]) return false;
    std::vector<int64_t> tried;
    for (const size_t device : fullest_first()) {
      if (left_[device] < bytes_[item]) continue;
      if (std::find(tried.begin(), tried.end(), left_[device]) != tried.end()) continue;
      tried.push_back(left_[device]);
      left_[device] -= bytes_[item];
      at_[item] = static_cast<int>(device);
      if (search(depth + 1)) return true;
      left_[device] += bytes_[item];
      if (steps_ > most_) return false;
    }
    return false;
  }
  bool exhausted() const { return steps_ > most_; }
  const std::vector<int>& devices() const { return at_; }

 private:
  std::vector<size_t> fullest_first() const {
    std::vector<size_t> order(left_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return left_[a] < left_[b]; });
    return order;
  }

  const std::vector<int64_t>& bytes_;
  std::vector<size_t> order_;
  std::vector<int64_t> left_, rest_;
  std::vector<int> at_;
  int64_t most_, steps_ = 0;
};

}  // namespace

std::vector<int> longest_first(const std::vector<double>& values, int devices) {
  std::vector<double> sums(static_cast<size_t>(devices), 0.0);
  std::vector<int> out(values.size(), 0);
  for (const size_t item : descending(values)) {
    const auto least = std::min_element(sums.begin(), sums.end());
    out[item] = static_cast<int>(least - sums.begin());
    *least += values[item];
  }
  return out;
}

std::vector<int> karmarkar_karp(const std::vector<double>& values, int devices) {
  struct Group {
    double sum = 0;
    std::vector<size_t> items;
  };
  using Tuple = std::vector<Group>;  // descending sums
  const auto n = static_cast<size_t>(devices);
  const auto difference = [](const Tuple& tuple) { return tuple.front().sum - tuple.back().sum; };
  std::vector<Tuple> tuples;
  for (size_t i = 0; i < values.size(); ++i) {
    Tuple tuple(n);
    tuple[0] = {values[i], {i}};
    tuples.push_back(std::move(tuple));
  }
  while (tuples.size() > 1) {
    // Among tuples with equal differences the earlier one is taken.
    const auto take = [&] {
      const auto at = std::max_element(
          tuples.begin(), tuples.end(),
          [&](const Tuple& a, const Tuple& b) { return difference(a) < difference(b); });
      Tuple out = std::move(*at);
      tuples.erase(at);
      return out;
    };
    Tuple a = take();
    const Tuple b = take();
    for (size_t i = 0; i < n; ++i) {
      const Group& other = b[n - 1 - i];
      a[i].sum += other.sum;
      a[i].items.insert(a[i].items.end(), other.items.begin(), other.items.end());
    }
    std::stable_sort(a.begin(), a.end(),
                     [](const Group& x, const Group& y) { return x.sum > y.sum; });
    tuples.push_back(std::move(a));
  }
  std::vector<int> out(values.size(), 0);
  if (tuples.empty()) return out;
  for (size_t device = 0; device < n; ++device) {
    for (const size_t item : tuples[0][device].items) out[item] = static_cast<int>(device);
  }
  return out;
}

double greedy_key(const Table& table, GreedyKey key) {
  const auto dim = static_cast<double>(table.dim);
  const double lookup = dim * table.pooling_factor * table.bags;
  switch (key) {
    case GreedyKey::kDim: return dim;
    case GreedyKey::kSize: return static_cast<double>(table.bytes());
    case GreedyKey::kLookup: return lookup;
    case GreedyKey::kSizeLookup: return lookup * std::log10(static_cast<double>(table.rows));
  }
  return dim;
}

Answer greedy(const Problem& problem, GreedyKey key) {
  std::vector<std::tuple<double, int64_t, size_t>> order;
  const std::vector<int64_t> bytes = bytes_of(problem);
  for (size_t i = 0; i < problem.tables.size(); ++i) {
    order.emplace_back(greedy_key(problem.tables[i], key), bytes[i], i);
  }
  std::sort(order.rbegin(), order.rend());
  const auto devices = static_cast<size_t>(problem.devices);
  std::vector<double> sums(devices, 0.0);
  std::vector<int64_t> used(devices, 0);
  std::vector<int> at(problem.tables.size(), 0);
  for (const auto& [cost, size, table] : order) {
    size_t best = devices;
    for (size_t device = 0; device < devices; ++device) {
      if (used[device] + size > problem.memory_bytes) continue;
      if (best == devices ||
          std::tie(sums[device], used[device]) < std::tie(sums[best], used[best])) {
        best = device;
      }
    }
    if (best == devices) {
      return not_found(
          problem, 1,
          fmt::format("the rule found no device for table '{}'", problem.tables[table].name));
    }
    at[table] = static_cast<int>(best);
    sums[best] += cost;
    used[best] += size;
  }
  return answer_with(problem, whole_tables(problem, at), 1, "one placement by rule");
}

Answer random_placement(const Problem& problem, uint64_t seed) {
  const Philox philox{seed, 0};
  const std::vector<int64_t> bytes = bytes_of(problem);
  std::vector<int64_t> used(static_cast<size_t>(problem.devices), 0);
  std::vector<int> at;
  for (size_t table = 0; table < problem.tables.size(); ++table) {
    std::vector<int> free;
    for (int device = 0; device < problem.devices; ++device) {
      if (used[static_cast<size_t>(device)] + bytes[table] <= problem.memory_bytes)
        free.push_back(device);
    }
    if (free.empty()) {
      return not_found(
          problem, 1,
          fmt::format("the draw left no device for table '{}'", problem.tables[table].name));
    }
    const double draw = philox.uniform(table) * static_cast<double>(free.size());
    at.push_back(free[static_cast<size_t>(draw)]);
    used[static_cast<size_t>(at.back())] += bytes[table];
  }
  return answer_with(problem, whole_tables(problem, at), 1, "one placement by chance");
}

Answer brute_force(const Problem& problem) {
  const size_t tables = problem.tables.size();
  Coder coder(problem);
  std::vector<const CodedPiece*> pieces;
  for (size_t i = 0; i < tables; ++i) pieces.push_back(coder(Piece::whole(i, problem.tables[i])));
  std::vector<int> at(tables, 0), best;
  double best_ms = std::numeric_limits<double>::infinity();
  int64_t searched = 0;
  while (true) {
    std::vector<std::vector<const CodedPiece*>> devices(static_cast<size_t>(problem.devices));
    for (size_t i = 0; i < tables; ++i) devices[static_cast<size_t>(at[i])].push_back(pieces[i]);
    Assignment all(problem, std::move(devices));
    bool fits = true;
    for (int device = 0; device < problem.devices; ++device) {
      fits = fits && all.bytes(device) <= problem.memory_bytes;
    }
    if (fits) {
      ++searched;
      if (const double ms = all.cost(); ms < best_ms) {
        best_ms = ms;
        best = at;
      }
    }
    size_t digit = 0;
    while (digit < tables && ++at[digit] == problem.devices) at[digit++] = 0;
    if (digit == tables) break;
  }
  const std::string ended = "all placements of whole tables were tried";
  if (best.empty()) return not_found(problem, searched, ended);
  return answer_with(problem, whole_tables(problem, best), searched, ended);
}

std::vector<int> pack(const std::vector<int64_t>& bytes, int devices, int64_t memory_bytes,
                      int64_t most, bool& exact) {
  Packing packing(bytes, devices, memory_bytes, most);
  if (packing.search(0)) {
    exact = true;
    return packing.devices();
  }
  exact = !packing.exhausted();
  return {};
}

}  // namespace tessera::tables
