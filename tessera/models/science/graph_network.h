// Networks that classify the nodes of a graph: GCN (Kipf and Welling, 2017) and GraphSAGE with
// means (Hamilton et al., 2017). Each layer multiplies by a weight and sums over the edges of each
// node (op kind `spmm`): over all its edges or over a sample of them.
//
//   gcn          h' = act(A h W), where A is the matrix of the edges' values (normalised, with
//                self-loops)
//   graphsage    h' = act(h W_self + mean of neighbours (h W_neighbours))
//
// The features of the nodes are a sparse matrix too, and dropout acts on the entries of that
// matrix. There are no biases, as in the published code of GCN.
//
// Inputs: `features.begin`, `features.end` [nodes], `features.columns`, `features.values`
// [entries], `edges.begin`, `edges.end` [nodes], `edges.columns` and, for gcn, `edges.values`
// [edges], and `targets` [nodes]. A target is -1 if the class is unknown or not to be learnt. The
// loss is the mean over the other targets. Ops: layers.<i>.*, loss.*; the output of the last layer
// is layers.<last>.out. A step reads the whole graph, so there is no batch. The families of models
// (families.h) have samples that are drawn independently, so these networks are not among them:
// `tessera data graph` writes a graph file for the given nodes, and `tessera train` takes the file
// with data = { nodes = ... }. Plans may cut the dim `nodes`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/graph/graph.h"

namespace tessera {

struct GraphNetworkConfig {
  enum class Kind : uint8_t { kGcn, kGraphsage };
  Kind kind = Kind::kGcn;
  // `entries` counts the entries of the features of all nodes
  int64_t nodes = 0, edges = 0, features = 0, entries = 0;
  int64_t classes = 0, hidden = 16, layers = 2;
  double dropout = 0.5;
  // l2 / 2 times the sum of squares of the first layer's weights is added to the loss
  double l2 = 5e-4;
  std::string sampler = "none";  // attribute `sampler` of the ops spmm
  std::vector<int64_t> widths;   // sample size of each layer, if there is a sampler
  bool each_step = true;         // whether samples are drawn anew in each step
  DType dtype = DType::kFloat32;
};

// Builds the graph. Returns an error if a size is not positive, or if `widths` does not have one
// number for each layer.
Result<Graph> build_graph_network(const GraphNetworkConfig& config);

// Returns the ops of such a network that sum over edges, one per layer. Returns none for
// other graphs.
std::vector<OpId> sums_over_edges(const Graph& network);
// Returns the network with samples of at most widths[layer] edges of each row, chosen by `sampler`,
// or with all edges if `sampler` is "none". If the samples of `network` are drawn anew in each
// step, those of the result are too.
Graph with_samples(Graph network, const std::string& sampler, const std::vector<int64_t>& widths);

}  // namespace tessera
