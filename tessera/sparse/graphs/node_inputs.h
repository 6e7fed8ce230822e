// The parts of a graph that a network of nodes (models/graph_network.h) reads, by the names of its
// inputs.
//
//   TESSERA_TRY(const NodeData data, read_node_data("data/graphs", "cora"));
//   const NodeInputs inputs = node_inputs(data, weighted);
//   inputs.integers.at("edges.columns")
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tessera/sparse/graphs/read.h"

namespace tessera::sparse {

// Compressed rows: NAME.begin, NAME.end and NAME.columns, and NAME.values where edges have values.
// Each of the n features of a node counts 1 / n. `weighted`: the edges and a self-loop of each
// node, normalised as in GCN; else the edges as they are.
struct NodeInputs {
  std::map<std::string, std::vector<int64_t>> integers;
  std::map<std::string, std::vector<float>> numbers;
};
NodeInputs node_inputs(const NodeData& data, bool weighted);

}  // namespace tessera::sparse
