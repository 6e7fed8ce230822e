// Reads the nodes of one graph for a network that classifies nodes (models/science/graph_network.h): the
// edges of the graph, the features of the nodes and the classes of some nodes, from four files
// (docs/reference/graph-files.md). The nodes are divided into the parts train, val and test. Every
// step and every evaluation gets the whole graph. Only the targets depend on the part: they are -1
// for the nodes of the other parts.
//
//   TESSERA_TRY(const auto data, open_nodes("data/graphs/cora", "train", {&model, seed, "data", beside}));
#pragma once

#include <memory>
#include <string>

#include "tessera/runtime/data/data.h"

namespace tessera {

// Opens the nodes. `prefix` is the common prefix of the paths of the four files; `part` is train,
// val or test. Each of a node's k features has the value 1/k. A model with the input `edges.values`
// gets the edges and a self-loop for each node, with values normalised as in GCN. Any other model
// gets the edges as the files have them.
//
// Errors, one line each: those of read_node_data; a part without nodes; a model whose inputs are
// not those of a network of nodes, or whose sizes are not those of the graph. All errors are found
// here, so that load() does not fail.
Result<std::unique_ptr<DataSource>> open_nodes(const std::string& prefix, const std::string& part,
                                               const DataWants& wants);

}  // namespace tessera
