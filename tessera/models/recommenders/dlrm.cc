#include "tessera/models/recommenders/dlrm.h"

#include <fmt/format.h>

namespace tessera {

std::vector<ModelKey> model_keys(DlrmConfig& config) {
  std::vector<ModelKey> keys = sample_keys(config);
  keys.push_back({"interaction", &config.interaction, "of the vectors", {}, {"dot", "cross"}});
  keys.push_back({"layers", &config.layers, "of the cross interaction"});
  keys.push_back({"rank", &config.rank, "of the cross interaction's products"});
  for (const ModelKey& key : storage_keys(config)) keys.push_back(key);
  return keys;
}

Status complete(DlrmConfig& config) { return complete_recommender("dlrm", config); }

namespace {

// Makes the dot interaction of fields [batch, fields, width]: the first field, concatenated with
// the inner products of each field with all fields before it, [batch, fields = 1, others].
TensorId dot_interaction(GraphBuilder& g, TensorId fields) {
  const std::vector<TensorId> pairs = pair_products(g, fields, "fields", "width");
  const TensorId first =
      g.op1("first", "slice", {fields},
            {{"dim", std::string("fields")}, {"begin", int64_t{0}}, {"size", int64_t{1}}});
  std::vector<TensorId> parts = {
      g.op1("numbers", "rename", {first},
            {{"from", std::string("width")}, {"to", std::string("others")}})};
  parts.insert(parts.end(), pairs.begin(), pairs.end());
  return g.op1("join", "concat", parts, {{"dim", std::string("others")}});
}

// Makes the cross interaction of x0 [batch, fields, width], with the dims of x0.
TensorId cross_interaction(GraphBuilder& g, TensorId x0, const DlrmConfig& config) {
  const double in = static_cast<double>(size_of(g, x0, "fields") * config.width);
  const auto rank = static_cast<double>(config.rank);
  const std::vector<Dim> dims = {{"fields", size_of(g, x0, "fields")}, {"width", config.width}};
  TensorId x = x0;
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    const std::string name = fmt::format("{}", layer);
    LinearOptions down = glorot(in, rank);
    down.bias = false;
    const TensorId low =
        linear(g, name + ".down", x, {"fields", "width"}, {{"rank", config.rank}}, down);
    const TensorId up = linear(g, name + ".up", low, {"rank"}, dims, glorot(rank, in));
    const TensorId product = g.op1(name + ".product", "mul", {x0, up});
    x = g.op1(name + ".sum", "add", {product, x});
  }
  return x;
}

}  // namespace

Result<Graph> build_dlrm(const DlrmConfig& config, int64_t batch) {
  GraphBuilder g("dlrm");
  const RecommenderInputs inputs = recommender_inputs(g, config, batch);
  const std::vector<TensorId> fields = field_vectors(g, config, inputs);
  g.push("interaction");
  TensorId x = g.op1("fields", "concat", fields, {{"dim", std::string("fields")}});
  std::vector<std::string> contracted;
  if (config.interaction == "dot") {
    x = dot_interaction(g, x);
    contracted = {"fields", "others"};
  } else {
    x = cross_interaction(g, x, config);
    contracted = {"fields", "width"};
  }
  g.pop();
  click_loss(g, config, x, contracted, inputs.targets);
  return g.finish();
}

}  // namespace tessera
