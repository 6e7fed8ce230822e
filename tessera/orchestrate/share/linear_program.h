// Solves small linear programs by the simplex method on a dense table, in two phases:
//   minimise costs . x  subject to  rows, x >= 0.
// The entering column is the one of the most negative reduced cost, of equal ones the first; after
// many steps without progress it is the first negative one (Bland's rule), which cannot cycle. Equal
// programs have equal answers on all machines. Meant for some hundred rows and a thousand columns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tessera::share {

enum class RowSense : uint8_t { kAtMost, kEqual, kAtLeast };

struct LinearRow {
  std::vector<double> factors;  // one for each cost
  RowSense sense = RowSense::kAtMost;
  double value = 0;
};

struct LinearProgram {
  std::vector<double> costs;
  std::vector<LinearRow> rows;
};

struct LinearAnswer {
  bool found = false;  // false: no x satisfies the rows, or the cost has no bound
  double cost = 0;
  std::vector<double> values;  // one for each cost
  std::vector<size_t> basis;   // the column that belongs to each row; x first, then slacks
};
LinearAnswer solve(const LinearProgram& program);

}  // namespace tessera::share
