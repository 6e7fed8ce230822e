// DLRM: a recommender (Naumov et al., 2019) of numbers and of categories. The numbers go through the
// bottom MLP to a vector; each categorical feature has a table of vectors, of which the rows of its
// ids are summed up. The interaction of these vectors goes through the top MLP to one logit: will
// it be clicked. Two interactions:
//   dot    the inner products of all pairs of vectors, beside the bottom MLP's vector
//   cross  DCN-v2 (Wang et al., 2021) on the vectors side by side: layers
//          x' = x0 * (V (U x) + b) + x, with U and V of a low rank
// With the tables and bags of docs/reference/models.md and `interaction=cross` it is the model of
// MLPerf's recommendation benchmark of 2023.
//
// Op paths: bottom.<i>, tables.<f> (dims batch, fields, bag, rows, width), interaction.*, top.<i>,
// loss.*.
#pragma once

#include <string>
#include <vector>

#include "tessera/graph/graph.h"
#include "tessera/models/config.h"

namespace tessera {

struct DlrmConfig {
  int64_t dense = 13;                                    // numbers of a sample
  std::vector<int64_t> rows = {1000, 1000, 1000, 1000};  // of each table
  std::vector<int64_t> bags = {1};  // ids of a sample at most, by table; one number: of all
  int64_t width = 64;               // of a row, and of the bottom MLP's last layer
  std::vector<int64_t> bottom = {512, 256, 64};
  std::vector<int64_t> top = {512, 256, 1};
  std::string interaction = "dot";
  int64_t layers = 3, rank = 512;  // of the cross interaction
  std::string mode = "sum";        // of bags
  DType dtype = DType::kFloat32;
};

std::vector<ModelKey> model_keys(DlrmConfig& config);
Status complete(DlrmConfig& config);
// Inputs: `dense` [batch, numbers], `ids.<f>` int64 [batch, fields = 1, bag] below the rows of
// table f or -1, and `targets` int64 [batch, outputs = 1], 0 or 1. The loss is the mean binary cross
// entropy.
Result<Graph> build_dlrm(const DlrmConfig& config, int64_t batch);

}  // namespace tessera
