// Makes one choice for each of several nodes, at the least total cost of nodes and edges, under
// limits on sums: the integer program of Alpa's intra-operator pass (docs/planners/alpa.md section
// 7), with Tessera's own solver.
//
//   minimise  sum over nodes of cost(v, s_v) + sum over edges (u, v) of cost(s_u, s_v)
//   such that for each limit: sum over its nodes of amount(v, s_v) <= most
//
// An infinite cost forbids a choice or a pair of choices. So two nodes that must choose alike are
// an edge with infinite costs for unlike pairs.
//
// Problems without limits: first, nodes with at most two neighbours are taken out, because the best
// choice of such a node is a small table over its neighbours. This alone solves trees and chains.
// The remaining nodes are taken out with larger tables (elimination.h) if these are small enough.
// Problems with limits, or with tables that are too large, are solved by depth-first branch and
// bound. For the bound, each node passes its cost on to a neighbour that branches earlier
// (directional arc consistency), which is exact on trees. The worst case is exponential, so the
// number of branches is limited. An answer that is not proved says so, and has a bound on how much
// cheaper another one may be.
//
//   OneHotProblem problem;
//   problem.nodes = {{0, 5}, {1, 0}};                          // two nodes, two choices each
//   problem.edges = {{0, 1, {{0, 9}, {9, 0}}}};                // unlike choices cost 9
//   solve_one_hot(problem)->choices;                           // {0, 0}
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tessera::published {

struct OneHotEdge {
  size_t from = 0, to = 0;                // different nodes
  std::vector<std::vector<double>> cost;  // by choice of `from`, then of `to`
};
struct OneHotLimit {
  std::vector<size_t> nodes;
  std::vector<std::vector<double>> amount;  // by node of this limit, then by choice; at least 0
  double most = 0;
};
struct OneHotProblem {
  std::vector<std::vector<double>> nodes;  // cost by node and choice, at least one choice
  std::vector<OneHotEdge> edges;           // edges between the same two nodes add up
  std::vector<OneHotLimit> limits;
  int64_t most_branches = 20'000'000;
};
struct OneHotAnswer {
  double cost = 0;
  std::vector<size_t> choices;
  bool proved = true;  // false: most_branches was reached, a better answer may exist
  double bound = 0;    // no answer is cheaper; equal to the cost if the answer is proved
  int64_t branches = 0;
  std::string solver = "own";  // the solver that found the answer
};
// Returns the answer; nothing if limits and infinite costs allow no choices. If most_branches was
// reached before an answer was found, the cost is infinite and there are no choices.
std::optional<OneHotAnswer> solve_one_hot(const OneHotProblem& problem);

// Returns the cost of given choices, edges included; infinite if a limit is exceeded.
double cost_of(const OneHotProblem& problem, const std::vector<size_t>& choices);

}  // namespace tessera::published
