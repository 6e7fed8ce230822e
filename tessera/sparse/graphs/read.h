// Reads graphs, and facts about their nodes, from text files. docs/reference/graph-files.md
// describes the formats. Errors are one line "file:line: expected ..., found ..."; errors about the
// whole matrix have no line number. A file of n bytes may have at most 16 n + 65536 nodes, so that
// a small file cannot demand much memory.
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
  // A file must list its entries in ascending order, by rows or by columns. Another order is an
  // error, because it shows that the file was cut or joined. If `sort` is set, any order is
  // allowed.
  bool sort = false;
  bool symmetric = false;  // if set, it is an error if the matrix is not symmetric
  bool valued = true;      // if not set, all edges count 1, whatever the file says
};

// Reads a file in Matrix Market's coordinate format: real, integer or pattern; general or
// symmetric. A symmetric file lists one triangle and the diagonal; the result has both triangles.
Result<CsrGraph> read_matrix_market(const std::string& path, const ReadOptions& options = {});

struct EdgeListOptions : ReadOptions {
  int64_t nodes = 0;    // 0: the largest node that an edge names, plus one
  bool mirror = false;  // the file lists each undirected edge once; the result has both directions
};
// Reads a file with one edge in each line: `row column` or `row column value`, separated by blanks
// or tabs. Nodes are counted from 0. Skips empty lines and lines that begin with # or %.
Result<CsrGraph> read_edge_list(const std::string& path, const EdgeListOptions& options = {});

// The data of a graph in which nodes are to be classified.
struct NodeData {
  CsrGraph graph;               // both directions of each undirected edge; no values
  CsrGraph features;            // nodes x features, without values: a node has a feature or not
  std::vector<int32_t> labels;  // by node, in [0, classes)
  int64_t classes = 0;
  std::vector<int32_t> train, validation, test;  // numbers of nodes, ascending
  int64_t nodes() const { return graph.rows(); }
};
// Reads four files of the folder. Their lines are: in NAME_edges.tsv an undirected edge, listed
// once; in NAME_features.tsv a node and the numbers of its features, below 2^20; in NAME_labels.tsv
// a node and its class; in NAME_split.tsv a node and `train`, `val` or `test`. Every node must have
// a line of features and a class. Errors: those above, and nodes that are missing, unknown or
// listed twice.
Result<NodeData> read_node_data(const std::string& folder, const std::string& name);

}  // namespace tessera::sparse
