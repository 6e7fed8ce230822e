#include "tessera/models/dlrm.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "tessera/models/nn.h"

namespace tessera {

std::vector<ModelKey> model_keys(DlrmConfig& config) {
  return {
      {"dense", &config.dense, "numbers of a sample"},
      {"rows", &config.rows, "of each table, as 1000-500-20"},
      {"bags", &config.bags, "ids of a sample at most, by table; one number: of all tables"},
      {"width", &config.width, "of the rows"},
      {"bottom", &config.bottom, "widths of the bottom MLP; the last one is `width`"},
      {"top", &config.top, "widths of the top MLP; the last one is 1"},
      {"interaction", &config.interaction, "of the vectors", {}, {"dot", "cross"}},
      {"layers", &config.layers, "of the cross interaction"},
      {"rank", &config.rank, "of the cross interaction's products"},
      {"mode", &config.mode, "of bags", {}, {"sum", "mean"}},
      {"dtype", &config.dtype, "of parameters and activations"},
  };
}

Status complete(DlrmConfig& config) {
  const auto failed = [](const std::string& message) { return model_error("dlrm", message); };
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

namespace {

// Weights with the variance 2 / (in + out), biases 0.
LinearOptions glorot(double in, double out) { return {normal(std::sqrt(2 / (in + out)))}; }

// Rectified linear layers `<scope>.<i>`, the last one plain if it is a logit. Their widths are dims
// "inner" and "outer" in turn, so that a plan may cut every other one.
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

// [batch, fields, width] -> the inner products of field i and each before it, beside the first
// field: [batch, pairs].
TensorId dot_interaction(GraphBuilder& g, TensorId fields) {
  const int64_t count = size_of(g, fields, "fields");
  const TensorId others =
      g.op1("others", "rename", {fields}, {{"from", "fields"}, {"to", "others"}});
  const TensorId products =
      g.op1("products", "einsum", {fields, others},
            {{"spec", "batch fields width+, batch others width -> batch fields others"}});
  const auto piece = [&](const std::string& name, TensorId x, const char* dim, int64_t begin,
                         int64_t size) {
    return g.op1(name, "slice", {x}, {{"dim", std::string(dim)}, {"begin", begin}, {"size", size}});
  };
  const TensorId first = piece("first", fields, "fields", 0, 1);
  std::vector<TensorId> parts = {
      g.op1("numbers", "rename", {first}, {{"from", "width"}, {"to", "others"}})};
  for (int64_t i = 1; i < count; ++i) {
    const TensorId row = piece(fmt::format("row.{}", i), products, "fields", i, 1);
    parts.push_back(piece(fmt::format("pairs.{}", i), row, "others", 0, i));
  }
  return g.op1("join", "concat", parts, {{"dim", std::string("others")}});
}

// [batch, fields, width] -> the same dims.
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
  const TensorId dense =
      g.input("dense", {{"batch", batch}, {"numbers", config.dense}}, config.dtype);
  const Dim one{"fields", 1}, width{"width", config.width};
  std::vector<TensorId> ids;
  for (size_t f = 0; f < config.rows.size(); ++f) {
    ids.push_back(g.input(fmt::format("ids.{}", f),
                          {{"batch", batch}, one, {"bag", config.bags[f]}}, DType::kInt64));
  }
  const TensorId targets = g.input("targets", {{"batch", batch}, {"outputs", 1}}, DType::kInt64);
  std::vector<TensorId> fields = {
      mlp(g, "bottom", dense, {"numbers"}, config.bottom, {one, width})};
  for (size_t f = 0; f < config.rows.size(); ++f) {
    const Dim rows{"rows", config.rows[f]};
    const double range = std::sqrt(1 / static_cast<double>(rows.size));
    const TensorId table = g.parameter(fmt::format("tables.{}.weight", f), {rows, width},
                                       {Init::Kind::kUniform, range}, config.dtype);
    fields.push_back(g.op1(fmt::format("tables.{}", f), "embedding_bag", {ids[f], table},
                           {{"mode", config.mode}}));
  }
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
  TensorId logits = mlp(g, "top", x, contracted, config.top, {{"outputs", 1}});
  // The loss is no narrower than float32.
  if (dtype_bytes(config.dtype) < dtype_bytes(DType::kFloat32)) {
    logits =
        g.op1("loss.cast", "cast", {logits}, {{"dtype", std::string(dtype_name(DType::kFloat32))}});
  }
  // softplus(s) - s where the target is 1: the binary cross entropy of logits s.
  g.push("loss");
  const TensorId softplus = g.op1("softplus", "softplus", {logits});
  const TensorId clicked = g.op1("clicked", "where", {targets, logits}, {{"otherwise", 0.0}});
  const TensorId each = g.op1("each", "sub", {softplus, clicked});
  g.graph().loss =
      g.op1("mean", "reduce_sum", {each},
            {{"dims", std::string("batch outputs")}, {"factor", 1 / static_cast<double>(batch)}});
  g.pop();
  return g.finish();
}

}  // namespace tessera
