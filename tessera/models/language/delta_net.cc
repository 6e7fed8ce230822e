#include "tessera/models/language/delta_net.h"

#include <cmath>

namespace tessera {
namespace {

// Added to the squared length of queries and keys (l2norm of transformers' modeling_qwen3_next.py).
constexpr double kLengthEps = 1e-6;

// Makes x / sqrt(|x|^2 + kLengthEps) times a factor, where `gain` is that factor over the root of the
// width: an RMS norm divides by the root of the mean square.
TensorId unit(GraphBuilder& g, const char* name, TensorId x, TensorId gain,
              const DeltaNetOptions& options) {
  const double eps = kLengthEps / static_cast<double>(options.key_dim);
  const std::vector<TensorId> out = g.op(name, "rms_norm", {x, gain}, {{"eps", eps}});
  return out.empty() ? TensorId() : out[0];
}

// Makes the logarithm of the share of the state that stays: -exp(a) softplus(dt).
TensorId log_decay(GraphBuilder& g, TensorId h, const std::vector<Dim>& heads,
                   const DeltaNetOptions& options, DType dtype) {
  LinearOptions steps = options.in;
  steps.bias = true;
  steps.bias_values = {Init::Kind::kOnes};
  const TensorId dt = g.op1("dt_act", "softplus", {linear(g, "dt", h, {"hidden"}, heads, steps)});
  const TensorId log = g.parameter("a_exp.weight", heads, {Init::Kind::kUniform, 1.0}, dtype);
  g.publish(log, as_vector(heads));
  const TensorId a = g.op1("a", "scale", {g.op1("a_exp", "exp", {log})}, {{"factor", -1.0}});
  return g.op1("decay", "mul", {dt, a});
}

}  // namespace

void add_unit_gains(GraphBuilder& g, DeltaNetOptions& options, DType dtype) {
  const std::vector<Dim> dims = {{"state", options.key_dim}};
  const auto width = static_cast<double>(options.key_dim);
  options.query_gain = g.buffer("ssm.query_gain", dims, {Init::Kind::kConstant, 1 / width}, dtype);
  options.key_gain =
      g.buffer("ssm.key_gain", dims, {Init::Kind::kConstant, 1 / std::sqrt(width)}, dtype);
}

TensorId gated_delta_net(GraphBuilder& g, TensorId h, const DeltaNetOptions& options) {
  if (!g.ok()) return {};
  const Tensor input = g.tensor(h);
  const std::vector<Dim> heads = {{"heads", options.heads}, {"group", options.group}};
  const std::vector<Dim> keys = {heads[0], {"state", options.key_dim}},
                         values = {heads[0], heads[1], {"head_dim", options.value_dim}};
  g.push("ssm");
  const auto made = [&](const char* name, const std::vector<Dim>& dims) {
    return linear(g, name, h, {"hidden"}, dims, options.in);
  };
  const auto convolved = [&](const char* name, const std::vector<Dim>& dims) {
    return causal_convolution(g, name, made(name, dims), options.conv, /*biased=*/false);
  };
  const TensorId q = unit(g, "q_unit", convolved("q", keys), options.query_gain, options);
  const TensorId k = unit(g, "k_unit", convolved("k", keys), options.key_gain, options);
  const TensorId v = convolved("v", values), z = made("z", values);
  const TensorId beta = g.op1("beta_act", "sigmoid", {made("beta", heads)});
  const TensorId decay = log_decay(g, h, heads, options, input.dtype);
  const TensorId y = g.op1("scan", "gated_delta_rule", {q, k, v, decay, beta});
  const TensorId normed = rms_norm(g, "norm", y, options.eps);
  const TensorId gated = g.op1("gated", "mul", {normed, g.op1("gate", "silu", {z})});
  const TensorId out =
      linear(g, "out", gated, {"heads", "group", "head_dim"}, {input.dims.back()}, options.out);
  g.pop();
  return out;
}

}  // namespace tessera
