// Computes the lower bound of cost networks; neural.h says how it is made.
#include <algorithm>
#include <functional>

#include "tessera/tables/neural.h"
#include "tessera/tables/placement.h"

namespace tessera::tables {
namespace {

constexpr int64_t kMostWidths = 256;  // tables with more widths of pieces get the bound 0

using Vector = std::vector<double>;

// Codes of a table's pieces by their number of units of columns (index 0 is not used).
struct Widths {
  std::vector<Vector> codes;
  // Returns the least sum of `value` over all ways to cut the table into such pieces.
  double least(bool cut, const std::function<double(const Vector&)>& value) const {
    const size_t units = codes.size() - 1;
    if (!cut) return value(codes[units]);
    Vector single(units + 1, 0.0), best(units + 1, 0.0);
    for (size_t n = 1; n <= units; ++n) {
      single[n] = value(codes[n]);
      best[n] = single[n];
      for (size_t k = 1; k < n; ++k) best[n] = std::min(best[n], single[k] + best[n - k]);
    }
    return best[units];
  }
};

// A convex lower bound of the head: a sum of ramps and a linear function.
class ConvexHead {
 public:
  // Makes the bound. It holds for sums whose coordinates are between 0 and those of `most`.
  ConvexHead(const Network& head, const Vector& most) : hidden_(head[0]), slope_(most.size(), 0.0) {
    const Layer& last = head[1];
    constant_ = last.bias[0];
    ramps_.assign(hidden_.outputs, 0.0);
    for (size_t j = 0; j < hidden_.outputs; ++j) {
      const double a = last.weights[j];
      double low = hidden_.bias[j], high = hidden_.bias[j];
      for (size_t i = 0; i < most.size(); ++i) {
        const double w = weight(i, j);
        (w < 0 ? low : high) += w * most[i];
      }
      if (a >= 0) {
        ramps_[j] = a;
      } else if (high > 0) {
        const double rise = low >= 0 ? 1 : high / (high - low);
        const double start = low >= 0 ? 0 : low;
        constant_ += a * rise * (hidden_.bias[j] - start);
        for (size_t i = 0; i < most.size(); ++i) slope_[i] += a * rise * weight(i, j);
      }
    }
  }

  double value(const Vector& x) const {
    double out = constant_;
    for (size_t i = 0; i < x.size(); ++i) out += slope_[i] * x[i];
    for (size_t j = 0; j < ramps_.size(); ++j) out += ramps_[j] * std::max(0.0, ramp(j, x));
    return out;
  }
  Vector gradient(const Vector& x) const {
    Vector out = slope_;
    for (size_t j = 0; j < ramps_.size(); ++j) {
      if (ramp(j, x) <= 0) continue;
      for (size_t i = 0; i < x.size(); ++i) out[i] += ramps_[j] * weight(i, j);
    }
    return out;
  }

 private:
  double weight(size_t i, size_t j) const { return hidden_.weights[i * hidden_.outputs + j]; }
  double ramp(size_t j, const Vector& x) const {
    double out = hidden_.bias[j];
    for (size_t i = 0; i < x.size(); ++i) out += weight(i, j) * x[i];
    return out;
  }

  const Layer& hidden_;
  Vector slope_, ramps_;
  double constant_ = 0;
};

}  // namespace

double NeuralCostModel::bound_ms(const Problem& problem) const {
  const bool replicas = problem.splits.replicas && prices(Sharding::kReplicated);
  if (problem.splits.rows || replicas || may_keep_hot(problem) || costs_.head.size() != 2) return 0;
  const bool cut = problem.splits.columns;
  std::vector<Widths> tables;
  Vector whole(encoded_, 0.0), most(encoded_, 0.0), code(width());
  for (size_t t = 0; t < problem.tables.size(); ++t) {
    const Table& table = problem.tables[t];
    const int64_t unit = cut && table.dim % problem.splits.least_columns == 0
                             ? problem.splits.least_columns
                             : table.dim;
    if (table.dim / unit > kMostWidths) return 0;
    Widths& widths = tables.emplace_back();
    widths.codes.resize(static_cast<size_t>(table.dim / unit) + 1);
    for (size_t n = 1; n < widths.codes.size(); ++n) {
      Piece piece = Piece::whole(t, table);
      piece.columns = static_cast<int64_t>(n) * unit;
      encode(table, piece, problem.devices, code);
      widths.codes[n].assign(code.begin(), code.begin() + static_cast<std::ptrdiff_t>(encoded_));
    }
    for (size_t i = 0; i < encoded_; ++i) {
      whole[i] += widths.codes.back()[i];
      most[i] -= widths.least(cut, [i](const Vector& c) { return -c[i]; });
    }
  }
  const ConvexHead head(costs_.head, most);
  double bound = 0;
  for (int used = 1; used <= problem.devices; ++used) {
    Vector mean = whole;
    for (double& x : mean) x /= used;
    const Vector gradient = head.gradient(mean);
    double least = head.value(mean);
    for (size_t i = 0; i < encoded_; ++i) least -= gradient[i] * mean[i];
    for (const Widths& widths : tables) {
      least += widths.least(cut, [&](const Vector& c) {
        double out = 0;
        for (size_t i = 0; i < c.size(); ++i) out += gradient[i] * c[i];
        return out / used;
      });
    }
    bound = used == 1 ? least : std::min(bound, least);
  }
  return std::max(0.0, bound);
}

}  // namespace tessera::tables
