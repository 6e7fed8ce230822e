#include "tessera/tables/neuroshard.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <set>

#include "tessera/base/infinity.h"

namespace tessera::tables {
namespace {

using PiecesOfDevices = std::vector<std::vector<const CodedPiece*>>;

struct Found {
  double ms = kInfinity;
  PiecesOfDevices devices;
};

// Finds the greedy placement under each limit of the grid.
class Inner {
 public:
  Inner(const Problem& problem, int grid) : problem_(problem), coder_(problem), grid_(grid) {}

  Found search(const std::vector<Piece>& pieces) {
    std::vector<const CodedPiece*> order;
    for (const Piece& piece : pieces) order.push_back(coder_(piece));
    std::stable_sort(order.begin(), order.end(), [](const CodedPiece* a, const CodedPiece* b) {
      return a->single_ms > b->single_ms;
    });
    double columns = 0;
    for (const CodedPiece* piece : order) columns += static_cast<double>(piece->piece.columns);
    Found best;
    for (int step = 0; step < grid_; ++step) {
      const double limit = (1 + 0.05 * step) * columns / problem_.devices;
      auto devices = place(order, limit);
      if (!devices) continue;
      ++searched_;
      const double ms = Assignment(problem_, *devices).cost();
      if (ms < best.ms) best = {ms, std::move(*devices)};
    }
    return best;
  }
  Coder& coder() { return coder_; }
  int64_t searched() const { return searched_; }

 private:
  struct Load {
    int64_t bytes = 0;
    double columns = 0;
    double compute_ms = 0;
    std::vector<double> sum;
  };

  std::optional<PiecesOfDevices> place(const std::vector<const CodedPiece*>& order,
                                       double limit) const {
    const CostModel& model = *problem_.cost;
    const auto count = static_cast<size_t>(problem_.devices);
    Load empty;
    empty.sum.assign(model.width(), 0.0);
    std::vector<Load> loads(count, empty);
    PiecesOfDevices devices(count);
    for (const CodedPiece* piece : order) {
      const auto columns = static_cast<double>(piece->piece.columns);
      size_t best = count;
      for (size_t device = 0; device < count; ++device) {
        const Load& load = loads[device];
        // The limit is a sum of dims times a factor; the slack is for rounding in that factor.
        if (load.bytes + piece->bytes > problem_.memory_bytes ||
            load.columns + columns > limit * (1 + 1e-12)) {
          continue;
        }
        if (best == count || load.compute_ms < loads[best].compute_ms ||
            (load.compute_ms == loads[best].compute_ms && load.bytes < loads[best].bytes)) {
          best = device;
        }
      }
      if (best == count) return std::nullopt;
      Load& load = loads[best];
      load.bytes += piece->bytes;
      load.columns += columns;
      for (size_t i = 0; i < load.sum.size(); ++i) load.sum[i] += piece->code[i];
      load.compute_ms = model.compute_ms(load.sum);
      devices[best].push_back(piece);
    }
    return devices;
  }

  const Problem& problem_;
  Coder coder_;
  int grid_;
  int64_t searched_ = 0;
};

// Adds the indices of the `most` pieces with the largest `value` to `out`; of equal pieces
// the first.
template <class Value>
void add_largest(const std::vector<Piece>& pieces, size_t most, const Value& value,
                 std::set<size_t>& out) {
  std::vector<size_t> order(pieces.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return value(pieces[a]) > value(pieces[b]); });
  out.insert(order.begin(),
             order.begin() + static_cast<std::ptrdiff_t>(std::min(most, order.size())));
}

struct Node {
  double ms = kInfinity;
  std::vector<size_t> steps;
};

Placement placed(const PiecesOfDevices& devices) {
  Placement out;
  for (size_t device = 0; device < devices.size(); ++device) {
    for (const CodedPiece* piece : devices[device]) {
      out.push_back({piece->piece, static_cast<int>(device)});
    }
  }
  return out;
}

}  // namespace

std::vector<Piece> split_columns(const std::vector<Table>& tables,
                                 const std::vector<size_t>& steps) {
  std::vector<Piece> out;
  for (size_t i = 0; i < tables.size(); ++i) out.push_back(Piece::whole(i, tables[i]));
  for (const size_t at : steps) {
    Piece& first = out[at];
    first.kind = Sharding::kColumns;
    Piece second = first;
    first.columns /= 2;
    second.first_column += first.columns;
    second.columns -= first.columns;
    out.push_back(second);
  }
  return out;
}

Answer neuroshard(const Problem& problem, const NeuroshardOptions& options) {
  Inner inner(problem, options.grid);
  Found best = inner.search(split_columns(problem.tables, {}));
  std::vector<Node> beam = {{best.ms, {}}};
  for (int turn = 0; turn < options.depth; ++turn) {
    std::vector<Node> next;
    for (const Node& node : beam) {
      const std::vector<Piece> pieces = split_columns(problem.tables, node.steps);
      std::set<size_t> candidates;
      const auto most = static_cast<size_t>(options.candidates);
      add_largest(
          pieces, most, [&](const Piece& p) { return inner.coder()(p)->bytes; }, candidates);
      add_largest(
          pieces, most, [&](const Piece& p) { return inner.coder()(p)->single_ms; }, candidates);
      for (const size_t i : candidates) {
        // Splits only pieces whose halves are multiples of the least width (4 as published).
        if (pieces[i].columns % (2 * problem.splits.least_columns) != 0) continue;
        std::vector<size_t> steps = node.steps;
        steps.push_back(i);
        Found found = inner.search(split_columns(problem.tables, steps));
        next.push_back({found.ms, std::move(steps)});
        if (found.ms < best.ms) best = std::move(found);
      }
    }
    if (next.empty()) break;
    std::stable_sort(next.begin(), next.end(),
                     [](const Node& a, const Node& b) { return a.ms < b.ms; });
    if (next.size() > static_cast<size_t>(options.beam))
      next.resize(static_cast<size_t>(options.beam));
    beam = std::move(next);
  }
  const std::string ended = fmt::format("{} turns of the beam", options.depth);
  if (best.devices.empty())
    return not_found(problem, inner.searched(), "no list of splits was found that fits");
  return answer_with(problem, placed(best.devices), inner.searched(), ended);
}

}  // namespace tessera::tables
