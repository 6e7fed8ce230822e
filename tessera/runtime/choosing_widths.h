// Finds how many edges of a node each layer of a trained graph network needs: the narrowest
// samples, by layer, under which its accuracy on given nodes stays within a budget
// (sparse/graphs/widths.h).
//
//   WidthsConfig config;
//   config.predict = {"runs/cora.graph", "runs/checkpoints"};
//   config.predict.data.nodes = "data/graphs/cora";
//   config.predict.data.part = "val";
//   config.budget = 0.01;                        // one percent of the nodes
//   TESSERA_TRY(const ChosenWidths chosen, choose_sample_widths(config));
//   to_text(chosen.network)                      // the network with these samples
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/graph/graph.h"
#include "tessera/runtime/predicting.h"

namespace tessera {

struct WidthsConfig {
  PredictConfig predict;
  double budget = 0.01;            // the accuracy that may be lost, of 1
  std::string sampler = "bucket";  // as the attribute of spmm
  std::vector<int64_t> widths;  // that are tried, ascending; none: powers of two up to the largest
                                // number of edges of a node
};

struct ChosenWidths {
  struct Layer {
    std::string path;  // path of the op that sums over edges
    int64_t width = 0;
    int64_t edges = 0, all_edges = 0;  // edges that it takes; edges that there are
  };
  std::vector<Layer> layers;
  double accuracy = 0, full_accuracy = 0;  // with these samples, with all edges
  int64_t asked = 0;                       // how often the network was evaluated
  Graph network;
};
// Chooses the widths. Errors: a model that is no network of nodes (models/graph_network.h), data
// that is not the nodes of a graph, those of predict(); a failed check if the widest samples lose
// more than the budget.
Result<ChosenWidths> choose_sample_widths(const WidthsConfig& config);

}  // namespace tessera
