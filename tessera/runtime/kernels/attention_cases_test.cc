// The cases of attention in its forms.
#include <string>

#include "tessera/runtime/kernels/test_kernel_cases.h"

namespace tessera::testing {
namespace {

TensorId parameter(GraphBuilder& g, const char* name, std::vector<Dim> dims, DType dtype) {
  return g.parameter(name, std::move(dims), {Init::Kind::kNormal, 1.0}, dtype);
}

}  // namespace

TensorId attention_form(GraphBuilder& g, DType t, std::string_view form, int64_t seq) {
  const auto has = [&](char letter) { return form.find(letter) != std::string_view::npos; };
  const Dim batch{"batch", 2}, queries{"seq", seq}, heads{"heads", 2}, group{"group", 2},
      width{"head_dim", 4};
  std::vector<TensorId> operands = {
      parameter(g, "q", {batch, queries, heads, group, width}, t),
      parameter(g, "k", {batch, queries, heads, width}, t),
      parameter(g, "v", {batch, queries, heads, has('v') ? Dim{"width", 3} : width}, t)};
  if (has('b')) operands.push_back(parameter(g, "bias", {heads, queries, {"kv", seq}}, t));
  if (has('s')) {
    operands.insert(operands.end(), 2, g.input("segments", {batch, queries}, DType::kInt64));
  }
  const std::vector<TensorId> out = g.op("op", "attention", operands,
                                         {{"causal", int64_t{has('c')}},
                                          {"window", has('w') ? seq / 2 + 1 : 0},
                                          {"p", has('d') ? 0.3 : 0.0},
                                          {"softcap", has('t') ? 0.7 : 0.0},
                                          {"key", std::string(has('d') ? "weights" : "")}});
  if (!has('l')) return out[0];
  // A sink: one more score, whose value is zero.
  const TensorId sink =
      parameter(g, "sink", {heads, group}, t == DType::kFloat64 ? t : DType::kFloat32);
  TensorId share = g.op1("share", "sigmoid", {g.op1("over", "sub", {out[1], sink})});
  share = g.op1("cast", "cast", {share}, {{"dtype", std::string(dtype_name(t))}});
  return g.op1("gated", "mul", {out[0], share});
}

std::vector<Case> attention_cases() {
  const Dim b{"b", 3}, n{"n", 2}, d{"d", 4};
  return {
      {"attention_zigzag",
       [=](auto& g, DType t) {
         const auto q = parameter(g, "q", {b, {"seq", 9}, n, {"g", 1}, d}, t);
         const auto k = parameter(g, "k", {b, {"seq", 9}, n, d}, t),
                    v = parameter(g, "v", {b, {"seq", 9}, n, d}, t);
         return g.op("op", "attention", {q, k, v},
                     {{"causal", int64_t{1}}, {"order", std::string("zigzag:4")}})[0];
       }},
      {"attention_window", [](auto& g, DType t) { return attention_form(g, t, "cw"); }},
      {"attention_window_of_both_sides",
       [](auto& g, DType t) { return attention_form(g, t, "w"); }},
      {"attention_segments", [](auto& g, DType t) { return attention_form(g, t, "cs"); }},
      {"attention_bias", [](auto& g, DType t) { return attention_form(g, t, "b"); }},
      {"attention_bias_causal", [](auto& g, DType t) { return attention_form(g, t, "cb"); }},
      {"attention_dropout", [](auto& g, DType t) { return attention_form(g, t, "cd"); }},
      {"attention_of_all_forms", [](auto& g, DType t) { return attention_form(g, t, "cwsbd"); }},
      {"attention_capped", [](auto& g, DType t) { return attention_form(g, t, "ct"); }},
      {"attention_values_wider", [](auto& g, DType t) { return attention_form(g, t, "cv"); }},
      {"attention_sink", [](auto& g, DType t) { return attention_form(g, t, "cwl"); }},
      {"attention_of_all_new_forms",
       [](auto& g, DType t) { return attention_form(g, t, "cwsbtvl"); }},
  };
}

}  // namespace tessera::testing
