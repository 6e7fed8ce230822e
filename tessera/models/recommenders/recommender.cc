#include "tessera/models/recommenders/recommender.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

namespace tessera {

std::vector<ModelKey> sample_keys(RecommenderConfig& config) {
  return {
      {"dense", &config.dense, "numbers of a sample"},
      {"rows", &config.rows, "of each table, as 1000-500-20"},
      {"bags", &config.bags, "ids of a sample at most, by table; one number: of all tables"},
      {"width", &config.width, "of the rows"},
      {"bottom", &config.bottom, "widths of the bottom MLP; the last one is `width`"},
      {"top", &config.top, "widths of the top MLP; the last one is 1"},
  };
}

std::vector<ModelKey> storage_keys(RecommenderConfig& config) {
  return {
      {"mode",
       &config.mode,
       "of bags; position: a sum with a trained weight for each place of a bag",
       {},
       {"sum", "mean", "position"}},
      {"dtype", &config.dtype, "of parameters and activations"},
  };
}

Status complete_recommender(std::string_view family, RecommenderConfig& config) {
  const auto failed = [&](const std::string& message) { return model_error(family, message); };
  if (config.bags.size() == 1) config.bags.assign(config.rows.size(), config.bags[0]);
  if (config.bags.size() != config.rows.size()) {
    return failed(fmt::format("bags={} must be one number or {}, one a table",
                              fmt::join(config.bags, "-"), config.rows.size()));
  }
  if (config.bottom.back() != config.width) {
    return failed(fmt::format("bottom={} must end with width={}", fmt::join(config.bottom, "-"),
                              config.width));
  }
  if (config.top.back() != 1)
    return failed(fmt::format("top={} must end with 1, the logit", fmt::join(config.top, "-")));
  return {};
}

LinearOptions glorot(double in, double out) { return {normal(std::sqrt(2 / (in + out)))}; }

namespace {

// Adds linear layers with rectifiers, `<scope>.<i>`. If the last layer makes one logit, it has no
// rectifier. The outputs of the layers have the dims "inner" and "outer" in turn, so that a plan
// may cut every second layer.
TensorId mlp(GraphBuilder& g, const std::string& scope, TensorId x,
             std::vector<std::string> contracted, const std::vector<int64_t>& widths,
             const std::vector<Dim>& last) {
  for (size_t i = 0; i < widths.size(); ++i) {
    double in = 1;
    for (const std::string& dim : contracted) in *= static_cast<double>(size_of(g, x, dim));
    const bool ends = i + 1 == widths.size();
    const std::vector<Dim> out =
        ends ? last : std::vector<Dim>{{i % 2 == 0 ? "inner" : "outer", widths[i]}};
    const std::string name = fmt::format("{}.{}", scope, i);
    x = linear(g, name, x, contracted, out, glorot(in, static_cast<double>(widths[i])));
    if (!ends || widths[i] > 1) x = g.op1(name + ".act", "relu", {x});
    contracted = {out.back().name};
  }
  return x;
}

}  // namespace

RecommenderInputs recommender_inputs(GraphBuilder& g, const RecommenderConfig& config,
                                     int64_t batch) {
  RecommenderInputs inputs;
  inputs.dense = g.input("dense", {{"batch", batch}, {"numbers", config.dense}}, config.dtype);
  for (size_t f = 0; f < config.rows.size(); ++f) {
    inputs.ids.push_back(g.input(fmt::format("ids.{}", f),
                                 {{"batch", batch}, {"fields", 1}, {"bag", config.bags[f]}},
                                 DType::kInt64));
  }
  inputs.targets = g.input("targets", {{"batch", batch}, {"outputs", 1}}, DType::kInt64);
  return inputs;
}

namespace {

// Makes the weight of each place of a bag of feature f, for every sample. The weights are 1
// at first.
TensorId weights_of_places(GraphBuilder& g, size_t f, TensorId ids, DType dtype) {
  const std::string path = fmt::format("positions.{}", f);
  const std::vector<Dim> dims = g.tensor(ids).dims;
  const TensorId weight = g.parameter(path + ".weight", {dims.back()}, {Init::Kind::kOnes}, dtype);
  std::string text;
  for (const Dim& dim : dims)
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", dim.name, dim.size);
  return g.op1(path, "broadcast_to", {weight}, {{"dims", text}});
}

}  // namespace

std::vector<TensorId> field_vectors(GraphBuilder& g, const RecommenderConfig& config,
                                    const RecommenderInputs& inputs) {
  const Dim one{"fields", 1}, width{"width", config.width};
  std::vector<TensorId> fields = {
      mlp(g, "bottom", inputs.dense, {"numbers"}, config.bottom, {one, width})};
  for (size_t f = 0; f < config.rows.size(); ++f) {
    const Dim rows{"rows", config.rows[f]};
    const double range = std::sqrt(1 / static_cast<double>(rows.size));
    const TensorId table = g.parameter(fmt::format("tables.{}.weight", f), {rows, width},
                                       {Init::Kind::kUniform, range}, config.dtype);
    std::vector<TensorId> operands = {inputs.ids[f], table};
    const bool weighted = config.mode == "position";
    if (weighted) operands.push_back(weights_of_places(g, f, inputs.ids[f], config.dtype));
    fields.push_back(g.op1(fmt::format("tables.{}", f), "embedding_bag", operands,
                           {{"mode", weighted ? std::string("sum") : config.mode}}));
  }
  return fields;
}

TensorId inner_products(GraphBuilder& g, TensorId x, const std::string& dim,
                        const std::string& width) {
  const TensorId others =
      g.op1("others", "rename", {x}, {{"from", dim}, {"to", std::string("others")}});
  return g.op1(
      "products", "einsum", {x, others},
      {{"spec", fmt::format("batch {0} {1}+, batch others {1} -> batch {0} others", dim, width)}});
}

std::vector<TensorId> pair_products(GraphBuilder& g, TensorId x, const std::string& dim,
                                    const std::string& width) {
  const int64_t count = size_of(g, x, dim);
  const TensorId products = inner_products(g, x, dim, width);
  const auto piece = [&](const std::string& name, TensorId from, const std::string& of,
                         int64_t begin, int64_t size) {
    return g.op1(name, "slice", {from}, {{"dim", of}, {"begin", begin}, {"size", size}});
  };
  std::vector<TensorId> pairs;
  for (int64_t i = 1; i < count; ++i) {
    const TensorId row = piece(fmt::format("row.{}", i), products, dim, i, 1);
    pairs.push_back(piece(fmt::format("pairs.{}", i), row, "others", 0, i));
  }
  return pairs;
}

void click_loss(GraphBuilder& g, const RecommenderConfig& config, TensorId x,
                const std::vector<std::string>& contracted, TensorId targets) {
  TensorId logits = mlp(g, "top", x, contracted, config.top, {{"outputs", 1}});
  // The loss is computed in float32 at least.
  if (dtype_bytes(config.dtype) < dtype_bytes(DType::kFloat32)) {
    logits =
        g.op1("loss.cast", "cast", {logits}, {{"dtype", std::string(dtype_name(DType::kFloat32))}});
  }
  // The binary cross entropy of a logit s is softplus(s), minus s if the target is 1.
  g.push("loss");
  const TensorId softplus = g.op1("softplus", "softplus", {logits});
  const TensorId clicked = g.op1("clicked", "where", {targets, logits}, {{"otherwise", 0.0}});
  const TensorId each = g.op1("each", "sub", {softplus, clicked});
  const auto batch = static_cast<double>(size_of(g, targets, "batch"));
  g.graph().loss = g.op1("mean", "reduce_sum", {each},
                         {{"dims", std::string("batch outputs")}, {"factor", 1 / batch}});
  g.pop();
}

}  // namespace tessera
