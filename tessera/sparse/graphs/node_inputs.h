// Makes the inputs of a network of nodes (models/science/graph_network.h) from the data of a graph.
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

// Inputs by name. A matrix NAME in compressed rows is the inputs NAME.begin, NAME.end and
// NAME.columns, and NAME.values if its edges have values. NAME is `features` (each of the n
// features of a node has the value 1 / n) or `edges`.
struct NodeInputs {
  std::map<std::string, std::vector<int64_t>> integers;
  std::map<std::string, std::vector<float>> numbers;
};
// Makes the inputs. With `weighted`, a self-loop is added to each node, and the edges have values,
// normalised as in GCN. Otherwise the edges are those of the data, without values.
NodeInputs node_inputs(const NodeData& data, bool weighted);

}  // namespace tessera::sparse
