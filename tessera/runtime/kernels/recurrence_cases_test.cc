// The cases of recurrences along the sequence, and of the convolution before them.
#include "tessera/runtime/kernels/test_kernel_cases.h"

namespace tessera::testing {
namespace {

const Dim kB{"b", 3}, kS{"s", 5}, kN{"n", 2}, kD{"d", 4};

TensorId parameter(GraphBuilder& g, const char* name, std::vector<Dim> dims, DType dtype) {
  return g.parameter(name, std::move(dims), {Init::Kind::kNormal, 1.0}, dtype);
}

// Scans sequences of 5 tokens in chunks that do not divide them. Step sizes and decays are fair.
TensorId scan_case(GraphBuilder& g, DType t, int64_t chunk) {
  const Dim n{"n", 2}, r{"r", 3}, p{"p", 3}, k{"k", 4};
  const auto dt = g.op1("dt", "softplus", {parameter(g, "steps", {kB, kS, n, r}, t)});
  const auto a = g.op1("a", "scale", {g.op1("rate", "exp", {parameter(g, "log", {n, r}, t)})},
                       {{"factor", -1.0}});
  return g.op1(
      "op", "state_scan",
      {parameter(g, "x", {kB, kS, n, r, p}, t), dt, a, parameter(g, "keys", {kB, kS, n, k}, t),
       parameter(g, "queries", {kB, kS, n, k}, t), parameter(g, "skip", {n, r}, t)},
      {{"chunk", chunk}});
}
// Writes sequences of 5 tokens into states, in chunks that do not divide them. Decays and
// betas lie between 0 and 1, as in a model.
TensorId delta_rule_case(GraphBuilder& g, DType t, int64_t chunk) {
  const Dim n{"n", 2}, r{"r", 3}, p{"p", 3}, k{"k", 4};
  const auto steps = g.op1("steps", "softplus", {parameter(g, "rates", {kB, kS, n, r}, t)});
  return g.op1("op", "gated_delta_rule",
               {parameter(g, "queries", {kB, kS, n, k}, t), parameter(g, "keys", {kB, kS, n, k}, t),
                parameter(g, "values", {kB, kS, n, r, p}, t),
                g.op1("decay", "scale", {steps}, {{"factor", -1.0}}),
                g.op1("beta", "sigmoid", {parameter(g, "shares", {kB, kS, n, r}, t)})},
               {{"chunk", chunk}});
}
TensorId causal_conv_case(GraphBuilder& g, DType t, int64_t width, bool biased = true) {
  std::vector<TensorId> inputs = {parameter(g, "x", {kB, kS, kN, kD}, t),
                                  parameter(g, "w", {kN, kD, {"taps", width}}, t)};
  if (biased) inputs.push_back(parameter(g, "b", {kN, kD}, t));
  return g.op1("op", "causal_conv", inputs);
}

}  // namespace

std::vector<Case> recurrence_cases() {
  return {
      {"state_scan", [](auto& g, DType t) { return scan_case(g, t, 2); }},
      {"state_scan_token_by_token", [](auto& g, DType t) { return scan_case(g, t, 1); }},
      {"state_scan_in_one_chunk", [](auto& g, DType t) { return scan_case(g, t, 128); }},
      {"gated_delta_rule", [](auto& g, DType t) { return delta_rule_case(g, t, 2); }},
      {"gated_delta_rule_token_by_token",
       [](auto& g, DType t) { return delta_rule_case(g, t, 1); }},
      {"gated_delta_rule_in_one_chunk", [](auto& g, DType t) { return delta_rule_case(g, t, 64); }},
      {"causal_conv", [](auto& g, DType t) { return causal_conv_case(g, t, 4); }},
      {"causal_conv_without_bias",
       [](auto& g, DType t) { return causal_conv_case(g, t, 3, false); }},
      {"causal_conv_longer_than_the_sequence",
       [](auto& g, DType t) { return causal_conv_case(g, t, 7); }},
  };
}

}  // namespace tessera::testing
