// Reads graphs, and facts about their nodes, from text files. docs/reference/graph-files.md
// describes the formats. Errors are one line "file:line: expected ..., found ..."; errors of the
// whole matrix have no line number. A file of n bytes may have up to 16 n + 65536 nodes: so the
// memory for a file is in proportion to its size.
//
//   TESSERA_TRY(const CsrGraph graph, read_matrix_market("cora.mtx", {.symmetric = true}));
//   TESSERA_TRY(const NodeData nodes, read_node_data("data/graphs", "cora"));
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/sparse/graphs/csr.h"

namespace tessera::sparse {

struct ReadOptions {
  // Files list their entries in ascending order, by rows or by columns. Another order is an error,
  // since it shows that a file was cut or joined, unless this allows it.
  bool sort = false;
  bool symmetric = false;  // error if the matrix is not symmetric
  bool valued = true;      // false: all edges count 1, whatever the file says
};

// Reads Matrix Market, coordinate format: real, integer or pattern; general or symmetric. A
// symmetric file lists one triangle with the diagonal, and the matrix has both.
Result<CsrGraph> read_matrix_market(const std::string& path, const ReadOptions& options = {});

struct EdgeListOptions : ReadOptions {
  int64_t nodes = 0;    // 0: one more than the largest node that an edge names
  bool mirror = false;  // each undirected edge is listed once
};
// Reads one edge a line, `row column` or `row column value`, counted from 0, with blanks or tabs
// between; skips empty lines and lines that begin with # or %.
Result<CsrGraph> read_edge_list(const std::string& path, const EdgeListOptions& options = {});

// The facts about the nodes of a graph that classification needs.
struct NodeData {
  CsrGraph graph;               // undirected: both directions of each edge; no values
  CsrGraph features;            // nodes x features; no values: a feature is there or not
  std::vector<int32_t> labels;  // by node, in [0, classes)
  int64_t classes = 0;
  std::vector<int32_t> train, validation, test;  // nodes, ascending
  int64_t nodes() const { return graph.rows(); }
};
// Reads the files NAME_edges.tsv, NAME_features.tsv, NAME_labels.tsv and NAME_split.tsv of the
// folder: each undirected edge once; a node and its features, below 2^20; a node and its class; a
// node and `train`, `val` or `test`. Every node has a line of features and a class. Errors: as
// above, and nodes that are missing, unknown or listed twice.
Result<NodeData> read_node_data(const std::string& folder, const std::string& name);

}  // namespace tessera::sparse
