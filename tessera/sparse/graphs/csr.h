// Graphs as sparse matrices in compressed rows (CSR): the edges of row i, at positions
// offsets[i] .. offsets[i + 1], lead to the nodes columns[e] and may carry a value each. A graph
// layer reads the features of node columns[e] to compute the result of node i, so the rows are the
// nodes that receive.
//
// Invariants, which check() tests and every function here keeps:
//   - offsets has rows + 1 elements, begins with 0, never falls, and ends with the number of edges;
//   - columns are in [0, column_count);
//   - values is empty (all edges count 1) or has one finite value an edge.
// Functions that make a graph sort the columns of each row and hold each edge once. A matrix may have rows without edges.
//
//   TESSERA_TRY(CsrGraph graph, csr_from_edges(nodes, nodes, edges, {.symmetric = true}));
//   graph = normalized_symmetric(with_self_loops(graph));   // D^-1/2 (A + I) D^-1/2
//
// Errors are one line that names expected and found, and the place that the caller gives.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/result.h"

namespace tessera::sparse {

struct CsrGraph {
  int64_t column_count = 0;
  std::vector<int64_t> offsets = {0};
  std::vector<int32_t> columns;
  std::vector<float> values;

  int64_t rows() const { return static_cast<int64_t>(offsets.size()) - 1; }
  int64_t edges() const { return static_cast<int64_t>(columns.size()); }
  int64_t degree(int64_t row) const {
    return offsets[static_cast<size_t>(row) + 1] - offsets[static_cast<size_t>(row)];
  }
  int64_t max_degree() const;
  float value(int64_t edge) const {
    return values.empty() ? 1.0F : values[static_cast<size_t>(edge)];
  }
  friend bool operator==(const CsrGraph&, const CsrGraph&) = default;
};

// `CsrDemands` asks for more than the invariants. Errors name the first row or edge at fault.
struct CsrDemands {
  bool sorted = false;     // the columns of each row ascend, none twice
  bool symmetric = false;  // square, and edge (j, i) is there with the value of (i, j)
};
Status check(const CsrGraph& graph, const CsrDemands& demands = {});

struct Edge {
  int32_t row = 0, column = 0;
  float value = 1;
  friend bool operator==(const Edge&, const Edge&) = default;
};

struct EdgeOptions {
  // Each edge is given once, in one of its two directions, and counts in both; a self-loop counts
  // once. It is then an error to give both directions, since the edge would count twice.
  bool mirror = false;
  bool symmetric = false;  // error if the result is not symmetric
  bool valued = true;      // keep the values; else all edges count 1
};
// Makes a graph of edges in any order. Errors: more than 2^31 - 1 rows or columns, a node out of
// range, a value that is not finite, an edge twice.
Result<CsrGraph> csr_from_edges(int64_t rows, int64_t columns, const std::vector<Edge>& edges,
                                const EdgeOptions& options = {});

// Turns each edge (i, j) into (j, i); columns come out sorted.
CsrGraph transpose(const CsrGraph& graph);
// Returns the graph with the edge (i, i) in every row, of value 1 where it was absent. The graph
// must be square and sorted.
CsrGraph with_self_loops(const CsrGraph& graph);
// Returns D^-1/2 A D^-1/2 of a square matrix A whose edges count their values; D has the sums of
// A's rows. This is the propagation of graph convolutions. Nodes with a sum of 0 or below keep
// zeros.
CsrGraph normalized_symmetric(const CsrGraph& graph);
// Returns D^-1 A: every row with a positive sum then sums to 1.
CsrGraph normalized_rows(const CsrGraph& graph);

}  // namespace tessera::sparse
