// Finds how many edges of a node each layer of a trained graph network needs: for each layer the
// smallest width (edges that are sampled for each node) with which the network's accuracy on given
// nodes loses no more than a budget (sparse/graphs/widths.h).
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
#include "tessera/runtime/evaluation/predicting.h"

namespace tessera {

struct WidthsConfig {
  PredictConfig predict;
  double budget = 0.01;            // accuracy that may be lost, as a difference of two shares
  std::string sampler = "bucket";  // a value of spmm's attribute `sampler`
  std::vector<int64_t> widths;  // widths to try, ascending; none: powers of two up to the largest
                                // number of edges of a node
};

struct ChosenWidths {
  struct Layer {
    std::string path;  // path of the op that sums over edges
    int64_t width = 0;
    int64_t edges = 0, all_edges = 0;  // edges that the layer uses; all edges
  };
  std::vector<Layer> layers;
  double accuracy = 0, full_accuracy = 0;  // with the chosen widths; with all edges
  int64_t asked = 0;                       // how often the network was evaluated
  Graph network;
};
// Chooses the widths. Errors: a model that is no network of nodes (models/science/graph_network.h), data
// that is not the nodes of a graph, and the errors of predict(); a failed check if even the largest
// width loses more than the budget.
Result<ChosenWidths> choose_sample_widths(const WidthsConfig& config);

}  // namespace tessera
