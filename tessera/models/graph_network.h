// Networks that classify the nodes of a graph: GCN (Kipf and Welling, 2017) and GraphSAGE with means
// (Hamilton et al., 2017). Each layer multiplies by a weight and adds up over edges (op kind `spmm`), of
// all edges or of a sample of each row.
//
//   gcn          h' = act(A h W), A the matrix of the edges' values: normalised, with self-loops
//   graphsage    h' = act(h W_self + mean of neighbours (h W_neighbours))
//
// The features of nodes are a sparse matrix too, and dropout takes its entries. Biases are left out, as
// in the published code of GCN.
//
// Inputs: `features.begin`, `features.end` [nodes], `features.columns`, `features.values` [entries],
// `edges.begin`, `edges.end` [nodes], `edges.columns` and, of gcn, `edges.values` [edges], and `targets`
// [nodes], -1 where the class is not known or not to be learnt; the loss is the mean over the others.
// Ops: layers.<i>.*, loss.*; output of the last layer: layers.<last>.out. There is no batch: a step
// reads the whole graph. So these are not among the families of models (families.h), whose samples
// are drawn independently: `tessera data graph` writes one as a graph file for the nodes at hand,
// and `tessera train` takes the file with data = { nodes = ... }. Plans may cut the dim `nodes`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/graph/graph.h"

namespace tessera {

struct GraphNetworkConfig {
  enum class Kind : uint8_t { kGcn, kGraphsage };
  Kind kind = Kind::kGcn;
  int64_t nodes = 0, edges = 0, features = 0, entries = 0;  // entries: of the features of all nodes
  int64_t classes = 0, hidden = 16, layers = 2;
  double dropout = 0.5;
  double l2 =
      5e-4;  // half of it times the sum of squares of the first layer's weights is added to the loss
  std::string sampler = "none";  // of spmm
  std::vector<int64_t> widths;   // by layer, where there is a sampler
  bool each_step = true;         // other samples in each step
  DType dtype = DType::kFloat32;
};

// Errors: of a size that is not positive, or of widths that are not one a layer.
Result<Graph> build_graph_network(const GraphNetworkConfig& config);

// The ops of such a network that add up over edges, one a layer; none: the graph is no such network.
std::vector<OpId> sums_over_edges(const Graph& network);
// The same network with samples of at most so many edges of a row, by layer, taken by `sampler`; by
// "none", of all edges. What is sampled in each step anew stays so.
Graph with_samples(Graph network, const std::string& sampler, const std::vector<int64_t>& widths);

}  // namespace tessera
