// The common part of recommenders: the numbers and categories of a sample become vectors, and the
// loss compares a logit with the click. The families dlrm and dhen differ in the ops between them.
//
// Op paths: bottom.<i>, tables.<f> (dims batch, fields, bag, rows, width), positions.<f> (with
// mode=position), top.<i>, loss.*.
#pragma once

#include <string>
#include <vector>

#include "tessera/models/config.h"
#include "tessera/models/nn.h"

namespace tessera {

struct RecommenderConfig {
  int64_t dense = 13;                                    // numbers of a sample
  std::vector<int64_t> rows = {1000, 1000, 1000, 1000};  // rows of each table
  std::vector<int64_t> bags = {1};  // the most ids of a sample, by table or for all tables
  int64_t width = 64;               // of a row, and of the bottom MLP's last layer
  std::vector<int64_t> bottom = {512, 256, 64};
  std::vector<int64_t> top = {512, 256, 1};
  std::string mode = "sum";  // of bags: sum, mean, position
  DType dtype = DType::kFloat32;
};

// Returns keys of the config above: those before a family's own keys, and below those behind them.
std::vector<ModelKey> sample_keys(RecommenderConfig& config);
std::vector<ModelKey> storage_keys(RecommenderConfig& config);
// Sets the bags of each table, and checks that the widths of the MLPs fit.
Status complete_recommender(std::string_view family, RecommenderConfig& config);

// Makes weights with the variance 2 / (in + out) (Glorot and Bengio, 2010), biases 0.
LinearOptions glorot(double in, double out);

struct RecommenderInputs {
  TensorId dense;             // [batch, numbers]
  std::vector<TensorId> ids;  // by table: int64 [batch, fields = 1, bag], below its rows or -1
  TensorId targets;           // int64 [batch, outputs = 1], 0 or 1
};
RecommenderInputs recommender_inputs(GraphBuilder& g, const RecommenderConfig& config,
                                     int64_t batch);
// Makes the bottom MLP's vector of the numbers, and the sum (mean, weighted sum) of each bag's
// rows, each [batch, fields = 1, width].
std::vector<TensorId> field_vectors(GraphBuilder& g, const RecommenderConfig& config,
                                    const RecommenderInputs& inputs);

// Makes, for vectors x [batch, `dim`, `width`], the inner products of vector i and each vector
// before it: a piece [batch, 1, others = i] for each i > 0. Ops `others`, `products`, `row.<i>` and
// `pairs.<i>`.
std::vector<TensorId> pair_products(GraphBuilder& g, TensorId x, const std::string& dim,
                                    const std::string& width);
// Makes all inner products [batch, `dim`, others] of such vectors: ops `others` and `products`.
TensorId inner_products(GraphBuilder& g, TensorId x, const std::string& dim,
                        const std::string& width);

// Takes x through the top MLP to a logit, whose mean binary cross entropy with the targets becomes
// the loss of the graph. `contracted` are the dims of x behind batch.
void click_loss(GraphBuilder& g, const RecommenderConfig& config, TensorId x,
                const std::vector<std::string>& contracted, TensorId targets);

}  // namespace tessera
