// The common part of recommenders: the ops that turn the numbers and categories of a sample into
// vectors, and the loss, which compares a logit with the click. The families dlrm and dhen differ
// in the ops between the two.
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
  int64_t dense = 13;                                    // count of numbers of a sample
  std::vector<int64_t> rows = {1000, 1000, 1000, 1000};  // rows of each table
  // The largest number of ids in a sample's bag, for each table or one for all tables.
  std::vector<int64_t> bags = {1};
  int64_t width = 64;  // of a table's row, and of the bottom MLP's last layer
  std::vector<int64_t> bottom = {512, 256, 64};
  std::vector<int64_t> top = {512, 256, 1};
  std::string mode = "sum";  // how the rows of a bag are joined: sum, mean, position
  DType dtype = DType::kFloat32;
};

// Returns keys of the config above. The first function returns those that are listed before a
// family's own keys, the second those that are listed after them.
std::vector<ModelKey> sample_keys(RecommenderConfig& config);
std::vector<ModelKey> storage_keys(RecommenderConfig& config);
// Gives each table its bag size, and checks that the widths of the MLPs fit.
Status complete_recommender(std::string_view family, RecommenderConfig& config);

// Returns options with weights of variance 2 / (in + out) (Glorot and Bengio, 2010) and biases 0.
LinearOptions glorot(double in, double out);

struct RecommenderInputs {
  TensorId dense;  // [batch, numbers]
  // for each table int64 [batch, fields = 1, bag]: row numbers of the table, or -1
  std::vector<TensorId> ids;
  TensorId targets;  // int64 [batch, outputs = 1], 0 or 1
};
RecommenderInputs recommender_inputs(GraphBuilder& g, const RecommenderConfig& config,
                                     int64_t batch);
// Makes the vector that the bottom MLP computes from the numbers, and for each table the sum (mean,
// weighted sum) of the rows of each bag. Each result is [batch, fields = 1, width].
std::vector<TensorId> field_vectors(GraphBuilder& g, const RecommenderConfig& config,
                                    const RecommenderInputs& inputs);

// Makes, for the vectors of x [batch, `dim`, `width`], the inner products of each vector i > 0 with
// all vectors before i in `dim`: one tensor [batch, 1, others = i] for each i. Ops `others`,
// `products`, `row.<i>` and `pairs.<i>`.
std::vector<TensorId> pair_products(GraphBuilder& g, TensorId x, const std::string& dim,
                                    const std::string& width);
// Makes the inner products of all pairs of such vectors, [batch, `dim`, others], by ops `others`
// and `products`.
TensorId inner_products(GraphBuilder& g, TensorId x, const std::string& dim,
                        const std::string& width);

// Passes x through the top MLP to a logit, and makes the mean binary cross entropy of the logit and
// the targets the loss of the graph. `contracted` are the dims of x other than batch.
void click_loss(GraphBuilder& g, const RecommenderConfig& config, TensorId x,
                const std::vector<std::string>& contracted, TensorId targets);

}  // namespace tessera
