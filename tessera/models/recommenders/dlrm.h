// DLRM is a recommender (Naumov et al., 2019) for numbers and categories. The bottom MLP makes one
// vector from the numbers. Each categorical feature has a table of vectors and makes the sum of the
// rows that its ids name. The interaction joins these vectors, and the top MLP makes one logit from
// the result, for the probability of a click. There are two interactions:
//   dot    the inner products of all pairs of vectors, joined with the bottom MLP's vector
//   cross  DCN-v2 (Wang et al., 2021) on the concatenated vectors x0: layers
//          x' = x0 * (V (U x) + b) + x, where U and V have a low rank
// With `interaction=cross` and the tables and bags given in docs/reference/models.md it is the
// model of MLPerf's recommendation benchmark of 2023.
//
// Op paths: those of recommender.h, and interaction.* after the tables and before the top MLP.
#pragma once

#include <string>
#include <vector>

#include "tessera/graph/graph.h"
#include "tessera/models/recommenders/recommender.h"

namespace tessera {

struct DlrmConfig : RecommenderConfig {
  std::string interaction = "dot";
  int64_t layers = 3, rank = 512;  // number of cross layers, and the rank of U and V
};

std::vector<ModelKey> model_keys(DlrmConfig& config);
Status complete(DlrmConfig& config);
// Builds the graph. Inputs: `dense` [batch, numbers]; `ids.<f>` int64 [batch, fields = 1, bag],
// which are row numbers of table f, or -1 for no row; and `targets` int64 [batch, outputs = 1], 0
// or 1. The loss is the mean binary cross entropy.
Result<Graph> build_dlrm(const DlrmConfig& config, int64_t batch);

}  // namespace tessera
