// Networks that classify the nodes of a graph: GCN (Kipf and Welling, 2017) and GraphSAGE with
// means (Hamilton et al., 2017). Each layer multiplies by a weight and sums over edges (op kind
// `spmm`), over all edges or a sample of each row.
//
//   gcn          h' = act(A h W), A the matrix of the edges' values: normalised, with self-loops
//   graphsage    h' = act(h W_self + mean of neighbours (h W_neighbours))
//
// The features of nodes are a sparse matrix too, and dropout acts on its entries. There are no
// biases, as in the published code of GCN.
//
// Inputs: `features.begin`, `features.end` [nodes], `features.columns`, `features.values`
// [entries], `edges.begin`, `edges.end` [nodes], `edges.columns` and, for gcn, `edges.values`
// [edges], and `targets` [nodes], -1 where the class is unknown or not to be learnt; the loss is
// the mean over the others. Ops: layers.<i>.*, loss.*; output of the last layer: layers.<last>.out.
// There is no batch: a step reads the whole graph. So these networks are not among the families of
// models (families.h), whose samples are drawn independently: `tessera data graph` writes a graph
// file for the given nodes, and `tessera train` takes the file with data = { nodes = ... }. Plans
// may cut the dim `nodes`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/graph/graph.h"

namespace tessera {

struct GraphNetworkConfig {
  enum class Kind : uint8_t { kGcn, kGraphsage };
  Kind kind = Kind::kGcn;
  int64_t nodes = 0, edges = 0, features = 0, entries = 0;  // entries of all nodes' features
  int64_t classes = 0, hidden = 16, layers = 2;
  double dropout = 0.5;
  double l2 =
      5e-4;  // the loss has l2 / 2 times the sum of squares of the first layer's weights added
  std::string sampler = "none";  // attribute of spmm
  std::vector<int64_t> widths;   // by layer, if there is a sampler
  bool each_step = true;         // other samples in each step
  DType dtype = DType::kFloat32;
};

// Builds the graph. Returns an error for a size that is not positive, or if widths are not one for
// each layer.
Result<Graph> build_graph_network(const GraphNetworkConfig& config);

// Returns the ops of such a network that sum over edges, one a layer; none for other graphs.
std::vector<OpId> sums_over_edges(const Graph& network);
// Returns the network with samples of at most widths[layer] edges of a row, taken by `sampler`, or
// with all edges ("none"). Samples that are drawn anew in each step remain so.
Graph with_samples(Graph network, const std::string& sampler, const std::vector<int64_t>& widths);

}  // namespace tessera
