#include "tessera/orchestrate/share/linear_program.h"

#include <algorithm>
#include <cmath>

namespace tessera::share {
namespace {

constexpr double kTiny = 1e-9;
constexpr size_t kMostSteps = 50'000;
constexpr size_t kStepsBeforeBland = 2'000;

// Rows of the form basis column + ... = value. Columns: x, slacks, artificial ones, the value.
class Simplex {
 public:
  explicit Simplex(const LinearProgram& program) : x_(program.costs.size()) {
    const size_t rows = program.rows.size();
    width_ = x_ + 2 * rows + 1;
    table_.assign(rows + 1, std::vector<double>(width_));
    for (size_t i = 0; i < rows; ++i) add_row(program.rows[i], i);
  }

  LinearAnswer solve(const std::vector<double>& costs) {
    LinearAnswer out;
    const size_t rows = basis_.size();
    std::vector<double> artificial(width_ - 1);
    for (size_t i = 0; i < rows; ++i) artificial[x_ + rows + i] = 1;
    set_costs(artificial);
    if (!minimise(width_ - 1) || -table_.back().back() > 1e-6) return out;
    leave_artificial();
    std::vector<double> own(width_ - 1);
    std::copy(costs.begin(), costs.end(), own.begin());
    set_costs(own);
    if (!minimise(x_ + rows)) return out;
    out.found = true;
    out.cost = -table_.back().back();
    out.basis = basis_;
    out.values.assign(x_, 0);
    for (size_t i = 0; i < rows; ++i) {
      if (basis_[i] < x_) out.values[basis_[i]] = table_[i].back();
    }
    return out;
  }

 private:
  void add_row(const LinearRow& row, size_t i) {
    std::vector<double>& own = table_[i];
    const size_t rows = table_.size() - 1;
    std::copy(row.factors.begin(), row.factors.end(), own.begin());
    own.back() = row.value;
    if (row.sense != RowSense::kEqual) own[x_ + i] = row.sense == RowSense::kAtMost ? 1 : -1;
    if (own.back() < 0) {
      for (double& value : own) value = -value;
    }
    const bool has_slack = own[x_ + i] > 0;
    if (!has_slack) own[x_ + rows + i] = 1;
    basis_.push_back(has_slack ? x_ + i : x_ + rows + i);
  }

  // Writes the costs into the last row, reduced by those of the basis.
  void set_costs(const std::vector<double>& costs) {
    std::vector<double>& last = table_.back();
    std::copy(costs.begin(), costs.end(), last.begin());
    last.back() = 0;
    for (size_t i = 0; i < basis_.size(); ++i) {
      const double cost = costs[basis_[i]];
      if (cost == 0) continue;
      for (size_t k = 0; k < width_; ++k) last[k] -= cost * table_[i][k];
    }
  }

  void pivot(size_t row, size_t column) {
    std::vector<double>& own = table_[row];
    const double scale = 1 / own[column];
    for (double& value : own) value *= scale;
    own[column] = 1;
    for (size_t i = 0; i < table_.size(); ++i) {
      const double factor = table_[i][column];
      if (i == row || factor == 0) continue;
      for (size_t k = 0; k < width_; ++k) table_[i][k] -= factor * own[k];
      table_[i][column] = 0;
    }
    basis_[row] = column;
  }

  // Pivots until no reduced cost of the first columns is negative. Returns false if there is no bound.
  bool minimise(size_t columns) {
    for (size_t step = 0; step < kMostSteps; ++step) {
      const std::vector<double>& costs = table_.back();
      size_t entering = columns;
      for (size_t k = 0; k < columns; ++k) {
        if (costs[k] >= -kTiny || (entering < columns && costs[k] >= costs[entering])) continue;
        entering = k;
        if (step > kStepsBeforeBland) break;
      }
      if (entering == columns) return true;
      size_t leaving = basis_.size();
      double least = 0;
      for (size_t i = 0; i < basis_.size(); ++i) {
        if (table_[i][entering] <= kTiny) continue;
        const double ratio = table_[i].back() / table_[i][entering];
        const bool is_tie = leaving < basis_.size() && ratio == least;
        if (leaving == basis_.size() || ratio < least || (is_tie && basis_[i] < basis_[leaving])) {
          leaving = i;
          least = ratio;
        }
      }
      if (leaving == basis_.size()) return false;
      pivot(leaving, entering);
    }
    return true;
  }

  // Takes artificial columns, which are 0 now, out of the basis where another column can replace them.
  void leave_artificial() {
    const size_t rows = basis_.size();
    for (size_t i = 0; i < rows; ++i) {
      if (basis_[i] < x_ + rows) continue;
      for (size_t k = 0; k < x_ + rows; ++k) {
        if (std::abs(table_[i][k]) <= kTiny) continue;
        pivot(i, k);
        break;
      }
    }
  }

  size_t x_, width_ = 0;
  std::vector<std::vector<double>> table_;  // the last row has the reduced costs
  std::vector<size_t> basis_;
};

}  // namespace

LinearAnswer solve(const LinearProgram& program) { return Simplex(program).solve(program.costs); }

}  // namespace tessera::share
