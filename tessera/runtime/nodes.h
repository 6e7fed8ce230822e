// The nodes of one graph, for a network that classifies them (models/graph_network.h): its edges, the
// features of the nodes and the classes of a part of them, read from four files (docs/reference/
// graph-files.md). Every step and every evaluation reads the whole graph; parts differ in the
// targets, which are -1 for the nodes of other parts.
//
//   TESSERA_TRY(const auto data, open_nodes("data/graphs/cora", "train", {&model, seed, "data", beside}));
#pragma once

#include <memory>
#include <string>

#include "tessera/runtime/data.h"

namespace tessera {

// Opens the nodes. `prefix` is the begin of the files' paths; `part` is train, val or test. Each of
// a node's k features counts 1/k. A model with the input `edges.values` gets the edges and a
// self-loop of each node, normalised as in GCN; any other model gets the edges as they are.
//
// Errors, one line each: those of read_node_data; a part without nodes; inputs that are not those
// of such a network; sizes that are not the graph's. All are found here: load() does not fail.
Result<std::unique_ptr<DataSource>> open_nodes(const std::string& prefix, const std::string& part,
                                               const DataWants& wants);

}  // namespace tessera
