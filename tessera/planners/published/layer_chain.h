// Finds the best strategy for each layer of a chain under a memory limit. Galvatron's search solves
// this problem for each stage (docs/planners/galvatron.md section 7).
//
//   f(l, e, s) = seconds(l, s) + min over s' of { f(l-1, e - memory(l, s), s') + change(l, s', s) }
//
// The published program fills a table over every megabyte of e. Here each (l, s) keeps the Pareto
// front of (memory, seconds) instead, which is exact for any unit of memory. Points that cannot
// become the answer are dropped. For this let x >= 0 be a price of memory, and g(x) the least value
// of (seconds + x memory) over the rest of the chain. A point is dropped if its seconds + x memory
// + g(x) - x limit exceeds the seconds of a plan known to fit, because it cannot be part of a
// better plan. Any x is valid; bisection finds one for which the bound is greatest. The answer is
// the published one: among plans that take equally long, the plan whose strategies have the lowest
// numbers, compared from the last layer to the first.
//
//   ChainProblem problem;
//   problem.layers = {{{10, 14}, {4, 2}}, {{10, 14}, {4, 2}}};      // two layers, two strategies
//   problem.change = [](size_t, size_t from, size_t to) { return from == to ? 0.0 : 1.0; };
//   problem.limit = 6;
//   best_chain(problem)->seconds;                                   // 25
//
// Work: layers * strategies^2 * size of the fronts.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace tessera::published {

struct ChainLayer {
  std::vector<double> seconds;  // by strategy; infinite for a forbidden strategy
  std::vector<int64_t> memory;  // by strategy, at least 0
};

struct ChainProblem {
  std::vector<ChainLayer> layers;  // at least one, each with at least one strategy
  // Returns the seconds of the change between layer l - 1 with strategy `from` and layer l with
  // strategy `to`; l >= 1.
  std::function<double(size_t l, size_t from, size_t to)> change;
  int64_t limit = 0;
  // The share by which the answer may take longer than the best chain. If it is not 0, the answer
  // is some chain that fits, not the first of equal ones; fronts are far smaller.
  double tolerance = 0;
};

struct ChainPlan {
  double seconds = 0;
  int64_t memory = 0;
  std::vector<size_t> strategies;  // by layer
};

// Returns the best chain; nothing if no chain fits.
std::optional<ChainPlan> best_chain(const ChainProblem& problem);

}  // namespace tessera::published
