// Shared by the tests of tables by rows: a table that two features read, a small recommender, and
// the optimizers that update rows.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tessera/graph/builder.h"
#include "tessera/models/model.h"
#include "tessera/runtime/session.h"

namespace tessera::row_models {

inline constexpr int64_t kBatch = 12;
inline const std::vector<std::string> kRowOptimizers = {"row_sgd", "adagrad", "rowwise_adagrad",
                                                        "row_adam"};
inline const std::string kDlrm =
    "dlrm:dense=4,rows=100-50-40-30,width=12,bottom=8-12,top=8-1,bags=3-1-2-5";

inline VerifyConfig config_of(const std::string& optimizer, double clip, int64_t steps = 3) {
  VerifyConfig config;
  config.batch = kBatch;
  config.steps = steps;
  config.timeout_s = 60;
  config.optimizer.kind = optimizer;
  config.optimizer.clip = clip;
  config.optimizer.lr = 0.01;
  return config;
}

// Two features with bags of three and of one, on one table: y = sum of rows, loss = sum(y c).
inline Model one_table(int64_t rows) {
  GraphBuilder g("one_table");
  const Dim batch{"batch", kBatch}, width{"width", 6};
  const TensorId table =
      g.parameter("table", {{"rows", rows}, width}, {Init::Kind::kNormal, 1}, DType::kFloat64);
  std::vector<TensorId> losses;
  Model model;
  for (const int64_t bag : {3, 1}) {
    const std::string name = fmt::format("feature{}", bag);
    const TensorId ids = g.input("ids." + name, {batch, {"bag", bag}}, DType::kInt64);
    InputRule rule;
    rule.input = "ids." + name;
    rule.values = rows;
    rule.mask = InputRule::Mask::kBag;
    model.inputs.push_back(rule);
    const TensorId c = g.input("c." + name, {batch, width}, DType::kFloat64);
    const TensorId y = g.op1(name, "embedding_bag", {ids, table});
    const TensorId product = g.op1(name + ".product", "mul", {y, c});
    losses.push_back(g.op1(name + ".loss", "reduce_sum", {product}, {{"dims", "batch width"}}));
  }
  g.graph().loss = g.op1("loss", "add_n", losses);
  auto graph = g.finish();
  EXPECT_TRUE(graph) << (graph ? "" : graph.error().message);
  model.batch = kBatch;
  model.graph = graph.value_or(Graph());
  return model;
}

// Returns how far parameters may be from those of the serial run. Rows and their steps are computed
// in one order under every plan; but where columns are cut, the sum of squares of a whole row is
// the sum of its pieces' sums.
inline double allowed_error(const std::string& optimizer, const std::string& plan) {
  const bool in_parts = optimizer == "rowwise_adagrad" && plan.find("width") != std::string::npos;
  return in_parts ? 1e-14 : 0;
}

// Inserts an entry, which ends in a comma, in front of the splits of a plan's text.
inline std::string with_split(std::string plan, const std::string& entry) {
  const std::string begin = "split = [";
  const size_t at = plan.find(begin);
  if (at == std::string::npos) return plan + begin + entry + "]\n";
  return plan.insert(at + begin.size(), entry);
}

}  // namespace tessera::row_models
