// Graphs as sparse matrices in compressed rows (CSR). The edges of row i are e = offsets[i] ..
// offsets[i + 1] - 1; edge e leads to node columns[e] and may have a value. A graph layer computes
// the result of node i from the features of the nodes columns[e], so the rows are the nodes that
// receive.
//
// Invariants, which check() tests and every function here keeps:
//   - offsets has rows + 1 elements, begins with 0, never falls, and ends with the number of edges;
//   - columns are in [0, column_count);
//   - values is empty (all edges count 1) or has one finite value for each edge.
// Functions that make a graph sort the columns of each row and keep each edge once. A row may have
// no edges.
//
//   TESSERA_TRY(CsrGraph graph, csr_from_edges(nodes, nodes, edges, {.symmetric = true}));
//   graph = normalized_symmetric(with_self_loops(graph));   // D^-1/2 (A + I) D^-1/2
//
// Errors are one line that says what was expected and what was found, and at which row or edge.
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

// `CsrDemands` lists properties that a caller needs beyond the invariants. Errors name the first
// row or edge that lacks one.
struct CsrDemands {
  bool sorted = false;     // the columns of each row ascend, each once
  bool symmetric = false;  // the matrix is square, and edges (i, j) and (j, i) have the same value
};
Status check(const CsrGraph& graph, const CsrDemands& demands = {});

struct Edge {
  int32_t row = 0, column = 0;
  float value = 1;
  friend bool operator==(const Edge&, const Edge&) = default;
};

struct EdgeOptions {
  // If set, each edge is given in one of its two directions and added in both; a self-loop is added
  // once. Giving both directions is then an error, because the edge would count twice.
  bool mirror = false;
  bool symmetric = false;  // if set, it is an error if the result is not symmetric
  bool valued = true;      // if set, edges keep their values; else all edges count 1
};
// Makes a graph from edges in any order. Errors: more than 2^31 - 1 rows or columns; a node out of
// range; a value that is not finite; an edge that is given twice.
Result<CsrGraph> csr_from_edges(int64_t rows, int64_t columns, const std::vector<Edge>& edges,
                                const EdgeOptions& options = {});

// Turns each edge (i, j) into (j, i). The columns of the result are sorted.
CsrGraph transpose(const CsrGraph& graph);
// Adds the edge (i, i) with value 1 to every row that lacks it. The graph must be square and
// sorted.
CsrGraph with_self_loops(const CsrGraph& graph);
// Returns D^-1/2 A D^-1/2, the propagation matrix of graph convolutions, where A is the square
// matrix of the edges' values and D is diagonal with the sums of A's rows. Rows and columns of
// nodes whose sum is 0 or negative become zeros.
CsrGraph normalized_symmetric(const CsrGraph& graph);
// Returns D^-1 A, where D has the sums of A's rows: every row with a positive sum then sums to 1.
CsrGraph normalized_rows(const CsrGraph& graph);

}  // namespace tessera::sparse
