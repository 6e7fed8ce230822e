// DLRM is a recommender (Naumov et al., 2019) for numbers and categories. The numbers go through
// the bottom MLP to a vector; each categorical feature has a table of vectors, of which the rows of
// its ids are summed. The interaction of these vectors goes through the top MLP to one logit, of a
// click. There are two interactions:
//   dot    the inner products of all pairs of vectors, beside the bottom MLP's vector
//   cross  DCN-v2 (Wang et al., 2021) on the vectors side by side: layers
//          x' = x0 * (V (U x) + b) + x, with U and V of a low rank
// With the tables and bags of docs/reference/models.md and `interaction=cross` it is the model of
// MLPerf's recommendation benchmark of 2023.
//
// Op paths: those of recommender.h, and interaction.* between the tables and the top MLP.
#pragma once

#include <string>
#include <vector>

#include "tessera/graph/graph.h"
#include "tessera/models/recommender.h"

namespace tessera {

struct DlrmConfig : RecommenderConfig {
  std::string interaction = "dot";
  int64_t layers = 3, rank = 512;  // of the cross interaction
};

std::vector<ModelKey> model_keys(DlrmConfig& config);
Status complete(DlrmConfig& config);
// Builds the graph. Inputs: `dense` [batch, numbers], `ids.<f>` int64 [batch, fields = 1, bag]
// below the rows of table f or -1, and `targets` int64 [batch, outputs = 1], 0 or 1. The loss is
// the mean binary cross entropy.
Result<Graph> build_dlrm(const DlrmConfig& config, int64_t batch);

}  // namespace tessera
