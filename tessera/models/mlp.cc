#include "tessera/models/mlp.h"

#include <fmt/format.h>

#include <cmath>

#include "tessera/models/nn.h"

namespace tessera {
namespace {

// Returns options for initial weights with which a layer followed by a rectifier keeps the variance
// of activations (He et al., 2015).
LinearOptions he_initialised(int64_t fan_in) {
  return {normal(std::sqrt(2.0 / static_cast<double>(fan_in)))};
}

}  // namespace

std::vector<ModelKey> model_keys(MlpConfig& config) {
  return {
      {"in", &config.in, "features of a row"},
      {"hidden", &config.hidden, "width of the hidden layers"},
      {"out", &config.out, "classes"},
      {"layers", &config.layers, "hidden layers"},
      {"activation", &config.activation, "after each hidden layer", {}, {"gelu", "relu", "silu"}},
      {"dtype", &config.dtype, "of parameters and activations"},
  };
}

Result<Graph> build_mlp(const MlpConfig& config, int64_t batch) {
  GraphBuilder g("mlp");
  TensorId x = g.input("x", {{"batch", batch}, {"in", config.in}}, config.dtype);
  const TensorId targets = g.input("targets", {{"batch", batch}}, DType::kInt64);
  Dim width = {"in", config.in};
  for (int64_t layer = 0; layer < config.layers && g.ok(); ++layer) {
    const Dim next = {layer % 2 == 0 ? "hidden" : "ffn", config.hidden};
    g.push(fmt::format("layers.{}", layer));
    x = linear(g, "linear", x, {width.name}, {next}, he_initialised(width.size));
    x = g.op1("act", config.activation, {x});
    g.pop();
    width = next;
  }
  x = linear(g, "head", x, {width.name}, {{"out", config.out}}, he_initialised(width.size));
  cross_entropy_loss(g, x, targets);
  return g.finish();
}

}  // namespace tessera
