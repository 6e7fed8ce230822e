// The cases of test_kernel_cases.h.
#include "tessera/runtime/kernels/test_kernel_cases.h"

#include <gtest/gtest.h>

#include <string>

#include "tessera/graph/kinds.h"
#include "tessera/graph/transform.h"

namespace tessera::testing {

std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

namespace {

TensorId parameter(GraphBuilder& g, const char* name, std::vector<Dim> dims, DType dtype) {
  return g.parameter(name, std::move(dims), {Init::Kind::kNormal, 1.0}, dtype);
}

const Dim kB{"b", 3}, kS{"s", 5}, kH{"h", 8}, kF{"f", 7}, kN{"n", 2}, kG{"g", 3}, kD{"d", 4},
    kV{"v", 11}, kP{"p", 2};

TensorId attention_case(GraphBuilder& g, DType t, bool causal, const Dim& group) {
  const auto q = parameter(g, "q", {kB, kS, kN, group, kD}, t);
  const auto k = parameter(g, "k", {kB, kS, kN, kD}, t), v = parameter(g, "v", {kB, kS, kN, kD}, t);
  return g.op("op", "attention", {q, k, v}, {{"causal", int64_t{causal}}})[0];
}

TensorId large_attention(GraphBuilder& g, DType t, bool causal, int64_t seq, int64_t group) {
  const Dim b{"b", 2}, s{"s", seq}, n{"n", 3}, d{"d", 24};
  const auto q = parameter(g, "q", {b, s, n, {"g", group}, d}, t);
  const auto k = parameter(g, "k", {b, s, n, d}, t), v = parameter(g, "v", {b, s, n, d}, t);
  return g.op("op", "attention", {q, k, v}, {{"causal", int64_t{causal}}})[0];
}

TensorId einsum_case(GraphBuilder& g, DType t, std::vector<Dim> a, std::vector<Dim> b,
                     const char* spec, std::vector<Dim> bias = {}) {
  std::vector<TensorId> inputs{parameter(g, "x", std::move(a), t),
                               parameter(g, "w", std::move(b), t)};
  if (!bias.empty()) inputs.push_back(parameter(g, "bias", std::move(bias), t));
  return g.op1("op", "einsum", inputs, {{"spec", std::string(spec)}});
}

// Routes the parameters x [b, s, h] by logits [b, s, experts], with too few slots for all tokens.
struct Routed {
  // `groups`: the best of two groups counts, and a bias is added before the choice.
  Routed(GraphBuilder& g, DType t, int64_t top_k, int64_t normalize = 1, bool groups = false)
      : x(parameter(g, "x", {kB, kS, kH}, t)) {
    const auto logits = parameter(g, "logits", {kB, kS, {"experts", 4}}, t);
    probs = g.op1("probs", "softmax", {logits}, {{"dim", std::string("experts")}});
    std::vector<TensorId> operands = {probs};
    if (groups) {
      operands.push_back(g.buffer("choice", {{"experts", 4}}, {Init::Kind::kNormal, 0.2}, t));
    }
    route = g.op("route", "moe_route", operands,
                 {{"top_k", top_k},
                  {"capacity", int64_t{2}},
                  {"normalize", normalize},
                  {"groups", int64_t{groups ? 2 : 1}},
                  {"group_best", int64_t{groups ? 2 : 1}}});
  }
  TensorId x, probs;
  std::vector<TensorId> route;
};
const Attributes kSlots{{"experts", int64_t{4}}, {"capacity", int64_t{2}}};

TensorId mixture_case(GraphBuilder& g, DType t, int64_t top_k, int64_t normalize = 1) {
  const Routed r(g, t, top_k, normalize);
  const auto slots = g.op1("dispatch", "moe_dispatch", {r.x, r.route[0]}, kSlots);
  const auto weights = parameter(g, "expert_weights", {{"experts", 4}, kH, kF}, t);
  const auto y = g.op1("expert", "einsum", {slots, weights},
                       {{"spec", std::string("e b c h+, e h f -> e b c f")}});
  return g.op1("op", "moe_combine", {y, r.route[0], r.route[1]});
}

// Returns maps [b, s, c, y, x] for a window of 3 x 2, or [b, s, c, z, y, x] for one of 2 x 3 x 2.
std::vector<Dim> map_dims(size_t spatial) {
  if (spatial == 2) return {{"b", 3}, {"s", 2}, {"c", 4}, {"y", 6}, {"x", 5}};
  return {{"b", 2}, {"s", 2}, {"c", 4}, {"z", 2}, {"y", 4}, {"x", 3}};
}
Attributes windows(size_t spatial, bool pool) {
  const bool flat = spatial == 2;
  Attributes attributes = {{"stride", std::string(flat ? "2 1" : "1 2 1")},
                           {"padding", std::string(flat ? "1 0" : "1 1 0")}};
  if (pool) attributes["kernel"] = std::string(flat ? "3 2" : "2 3 2");
  return attributes;
}
TensorId conv_case(GraphBuilder& g, DType t, size_t spatial) {
  std::vector<Dim> w = {{"o", 6}, {"c", 4}, {"kz", 2}, {"ky", 3}, {"kx", 2}};
  if (spatial == 2) w.erase(w.begin() + 2);
  return g.op1("op", "conv", {parameter(g, "x", map_dims(spatial), t), parameter(g, "w", w, t)},
               windows(spatial, false));
}
// Makes a case with few windows: in 16 bits another element of a window may become the largest.
TensorId pool_case(GraphBuilder& g, DType t, const char* kind, size_t spatial) {
  std::vector<Dim> x = map_dims(spatial);
  x[2].size = 1;
  return g.op1("op", kind, {parameter(g, "x", x, t)}, windows(spatial, true));
}
TensorId of_positive(GraphBuilder& g, DType t, const char* kind, Attributes attributes = {}) {
  const TensorId x = g.op1("positive", "exp", {parameter(g, "x", {kB, kH}, t)});
  return g.op1("op", kind, {x}, std::move(attributes));
}
TensorId batch_norm_case(GraphBuilder& g, DType t, const char* dims, bool runs = false) {
  std::vector<TensorId> inputs = {parameter(g, "x", map_dims(2), t),
                                  parameter(g, "gamma", {{"c", 4}}, t),
                                  parameter(g, "beta", {{"c", 4}}, t)};
  if (runs) {
    const DType statistics = t == DType::kFloat64 ? t : DType::kFloat32;
    for (const char* name : {"running_mean", "running_variance"})
      inputs.push_back(g.buffer(name, {{"c", 4}}, {Init::Kind::kOnes}, statistics));
  }
  return g.op("op", "batch_norm", inputs, {{"dims", std::string(dims)}})[0];
}

Attributes text(const char* key, const char* value) { return {{key, std::string(value)}}; }

std::vector<Case> general_cases() {
  return {
      {"einsum_linear",
       [](auto& g, DType t) {
         return einsum_case(g, t, {kB, kS, kH}, {kH, kF}, "b s h+, h f -> b s f");
       }},
      {"einsum_bias",
       [](auto& g, DType t) {
         return einsum_case(g, t, {kB, kS, kH}, {kH, kF}, "b s h+, h f, f -> b s f", {kF});
       }},
      {"einsum_transposed_weight",
       [](auto& g, DType t) {
         return einsum_case(g, t, {kB, kS, kH}, {kF, kH}, "b s h+, f h -> b s f");
       }},
      {"einsum_heads_out",
       [](auto& g, DType t) {
         return einsum_case(g, t, {kB, kS, kH}, {kH, kN, kG, kD}, "b s h+, h n g d -> b s n g d");
       }},
      {"einsum_heads_in",
       [](auto& g, DType t) {
         return einsum_case(g, t, {kB, kS, kN, kG, kD}, {kN, kG, kD, kH},
                            "b s n+ g+ d+, n g d h -> b s h");
       }},
      {"einsum_weight_gradient",
       [](auto& g, DType t) {
         return einsum_case(g, t, {kB, kS, kH}, {kB, kS, kF}, "b+ s+ h, b s f -> h f");
       }},
      {"einsum_batched",
       [](auto& g, DType t) {
         return einsum_case(g, t, {kB, kS, kN, kD}, {kB, kF, kN, kD},
                            "b s n d+, b f n d -> b n s f");
       }},
      {"einsum_odd_order",
       [](auto& g, DType t) {
         return einsum_case(g, t, {kS, kB, kH}, {kF, kB, kH}, "s b h+, f b h -> f s b");
       }},
      {"einsum_own_sums",
       [](auto& g, DType t) {
         return einsum_case(g, t, {kB, kS, kH}, {kH, kF, kN}, "b s+ h+, h f n+ -> b f");
       }},
      {"einsum_single",
       [](auto& g, DType t) {
         return g.op1("op", "einsum", {parameter(g, "x", {kB, kS, kH}, t)},
                      text("spec", "b s+ h -> h b"));
       }},
      {"add",
       [](auto& g, DType t) {
         return g.op1("op", "add",
                      {parameter(g, "x", {kB, kS, kH}, t), parameter(g, "y", {kB, kH}, t)});
       }},
      {"sub",
       [](auto& g, DType t) {
         return g.op1("op", "sub",
                      {parameter(g, "x", {kB, kS}, t), parameter(g, "y", {kB, kS}, t)});
       }},
      {"mul",
       [](auto& g, DType t) {
         return g.op1("op", "mul",
                      {parameter(g, "x", {kH}, t), parameter(g, "y", {kB, kS, kH}, t)});
       }},
      {"add_n",
       [](auto& g, DType t) {
         return g.op1("op", "add_n",
                      {parameter(g, "x", {kB, kS}, t), parameter(g, "y", {kB, kS}, t),
                       parameter(g, "z", {kB, kS}, t)});
       }},
      {"scale",
       [](auto& g, DType t) {
         return g.op1("op", "scale", {parameter(g, "x", {kB, kS}, t)}, {{"factor", 0.3}});
       }},
      {"tanh",
       [](auto& g, DType t) {
         return g.op1("op", "tanh", {parameter(g, "x", {kB, kH}, t)});
       }},
      {"gelu",
       [](auto& g, DType t) {
         return g.op1("op", "gelu", {parameter(g, "x", {kB, kH}, t)});
       },
       3},
      {"gelu_erf",
       [](auto& g, DType t) {
         return g.op1("op", "gelu_erf", {parameter(g, "x", {kB, kH}, t)});
       },
       3},
      {"silu",
       [](auto& g, DType t) {
         return g.op1("op", "silu", {parameter(g, "x", {kB, kH}, t)});
       },
       3},
      {"relu",
       [](auto& g, DType t) {
         return g.op1("op", "relu", {parameter(g, "x", {kB, kH}, t)});
       }},
      {"relu2",
       [](auto& g, DType t) {
         return g.op1("op", "relu2", {parameter(g, "x", {kB, kH}, t)});
       }},
      {"softplus",
       [](auto& g, DType t) {
         return g.op1("op", "softplus", {parameter(g, "x", {kB, kH}, t)});
       },
       3},
      {"exp",
       [](auto& g, DType t) {
         return g.op1("op", "exp", {parameter(g, "x", {kB, kH}, t)});
       }},
      {"layer_norm",
       [](auto& g, DType t) {
         return g.op("op", "layer_norm",
                     {parameter(g, "x", {kB, kS, kH}, t), parameter(g, "gamma", {kH}, t),
                      parameter(g, "beta", {kH}, t)})[0];
       }},
      {"layer_norm_expanded",
       [](auto& g, DType t) {
         return g.op("op", "layer_norm",
                     {parameter(g, "x", {kB, kS, kH}, t), parameter(g, "gamma", {kH}, t),
                      parameter(g, "beta", {kH}, t)})[0];
       },
       1, true},
      {"conv_2d", [](auto& g, DType t) { return conv_case(g, t, 2); }},
      {"conv_3d", [](auto& g, DType t) { return conv_case(g, t, 3); }},
      {"conv_of_single_elements",
       [](auto& g, DType t) {
         return g.op1("op", "conv",
                      {parameter(g, "x", map_dims(2), t),
                       parameter(g, "w", {{"o", 5}, {"c", 4}, {"ky", 1}, {"kx", 1}}, t)});
       }},
      {"conv_transpose",
       [](auto& g, DType t) {
         return g.op1("op", "conv_transpose",
                      {parameter(g, "x", map_dims(2), t),
                       parameter(g, "w", {{"c", 4}, {"o", 3}, {"ky", 3}, {"kx", 2}}, t)},
                      {{"dims", std::string("y=11 x=6")},
                       {"channels", std::string("o")},
                       {"stride", std::string("2 1")},
                       {"padding", std::string("1 0")}});
       }},
      // This has a stride that leaves elements out, and windows that reach over several pieces.
      {"conv_sparse",
       [](auto& g, DType t) {
         return g.op1("op", "conv",
                      {parameter(g, "x", {{"b", 2}, {"c", 2}, {"y", 11}, {"x", 9}}, t),
                       parameter(g, "w", {{"o", 2}, {"c", 2}, {"ky", 2}, {"kx", 7}}, t)},
                      {{"stride", std::string("3 1")}, {"padding", std::string("0 3")}});
       }},
      {"max_pool_wide",
       [](auto& g, DType t) {
         return g.op1("op", "max_pool",
                      {parameter(g, "x", {{"b", 1}, {"c", 1}, {"y", 9}, {"x", 11}}, t)},
                      {{"kernel", std::string("5 2")},
                       {"stride", std::string("2 3")},
                       {"padding", std::string("2 0")}});
       }},
      {"max_pool_2d", [](auto& g, DType t) { return pool_case(g, t, "max_pool", 2); }},
      {"max_pool_3d", [](auto& g, DType t) { return pool_case(g, t, "max_pool", 3); }},
      {"max_pool_of_equal_elements",  // the zeros of relu
       [](auto& g, DType t) {
         const TensorId x = parameter(g, "x", {{"b", 1}, {"c", 1}, {"y", 6}, {"x", 7}}, t);
         return g.op1("op", "max_pool", {g.op1("zeros", "relu", {x})},
                      {{"kernel", std::string("3 2")}, {"padding", std::string("1")}});
       }},
      {"avg_pool_2d", [](auto& g, DType t) { return pool_case(g, t, "avg_pool", 2); }},
      {"sum_pool_2d", [](auto& g, DType t) { return pool_case(g, t, "sum_pool", 2); }},
      {"avg_pool_3d", [](auto& g, DType t) { return pool_case(g, t, "avg_pool", 3); }},
      {"batch_norm", [](auto& g, DType t) { return batch_norm_case(g, t, "s y x"); }},
      {"batch_norm_expanded", [](auto& g, DType t) { return batch_norm_case(g, t, "s y x"); }, 1,
       true},
      {"batch_norm_running", [](auto& g, DType t) { return batch_norm_case(g, t, "s y x", true); }},
      {"batch_norm_running_expanded",
       [](auto& g, DType t) { return batch_norm_case(g, t, "s y x", true); }, 1, true},
      {"batch_norm_of_all", [](auto& g, DType t) { return batch_norm_case(g, t, "b s y x"); }},
      {"rms_norm",
       [](auto& g, DType t) {
         return g.op("op", "rms_norm",
                     {parameter(g, "x", {kB, kS, kH}, t), parameter(g, "gamma", {kH}, t)})[0];
       }},
      {"rms_norm_expanded",
       [](auto& g, DType t) {
         return g.op("op", "rms_norm",
                     {parameter(g, "x", {kB, kS, kH}, t), parameter(g, "gamma", {kH}, t)})[0];
       },
       1, true},
      {"softmax",
       [](auto& g, DType t) {
         return g.op1("op", "softmax", {parameter(g, "x", {kB, kS, kH}, t)}, text("dim", "s"));
       }},
      {"softmax_expanded",
       [](auto& g, DType t) {
         return g.op1("op", "softmax", {parameter(g, "x", {kB, kS, kH}, t)}, text("dim", "s"));
       },
       1, true},
      {"rotary",
       [](auto& g, DType t) {
         const auto c = g.buffer("cos", {kS, kP}, {Init::Kind::kRotaryCos, 100.0}, t);
         const auto s = g.buffer("sin", {kS, kP}, {Init::Kind::kRotarySin, 100.0}, t);
         return g.op1("op", "rotary", {parameter(g, "x", {kB, kS, kN, kD}, t), c, s});
       }},
      {"rotary_neighbours",
       [](auto& g, DType t) {
         const auto c = g.buffer("cos", {kS, kP}, {Init::Kind::kRotaryCos, 100.0}, t);
         const auto s = g.buffer("sin", {kS, kP}, {Init::Kind::kRotarySin, 100.0}, t);
         return g.op1("op", "rotary", {parameter(g, "x", {kB, kS, kN, kF}, t), c, s},
                      {{"neighbours", int64_t{1}}, {"first", int64_t{2}}});
       }},
      {"rotary_part",
       [](auto& g, DType t) {
         const auto c = g.buffer("cos", {kS, kP}, {Init::Kind::kRotaryCos, 100.0}, t);
         const auto s = g.buffer("sin", {kS, kP}, {Init::Kind::kRotarySin, 100.0}, t);
         return g.op1("op", "rotary", {parameter(g, "x", {kB, kS, kN, kF}, t), c, s});
       }},
      {"shift",
       [](auto& g, DType t) {
         return g.op1("op", "shift", {parameter(g, "x", {kB, kH}, t)}, {{"by", 1.5}});
       }},
      {"attention_causal",
       [](auto& g, DType t) {
         return attention_case(g, t, true, {"g", 1});
       }},
      {"attention_grouped", [](auto& g, DType t) { return attention_case(g, t, true, kG); }},
      {"attention_full",
       [](auto& g, DType t) {
         return attention_case(g, t, false, {"g", 1});
       }},
      {"reorder",
       [](auto& g, DType t) {
         return g.op1("op", "reorder", {parameter(g, "x", {kB, kF, kH}, t)},
                      {{"dim", std::string("f")}, {"order", std::string("zigzag:4")}});
       }},
      {"causal_mask",
       [](auto& g, DType t) {
         const auto x = parameter(g, "x", {kB, {"seq", 7}, {"kv", 7}}, t);
         return g.op1("op", "causal_mask", {x},
                      {{"order", std::string("striped:3")}, {"gradient", int64_t{1}}});
       }},
      {"sinusoid_add",
       [](auto& g, DType t) {
         return g.op1("op", "sinusoid_add", {parameter(g, "x", {kB, kS, kF}, t)}, text("dim", "s"));
       }},
      {"sinusoid_add_within",  // elements of two blocks of a longer sequence
       [](auto& g, DType t) {
         return g.op1(
             "op", "sinusoid_add", {parameter(g, "x", {kB, kS, kF}, t)},
             {{"dim", std::string("s")}, {"base", 100.0}, {"within", std::string("s=2/15/2")}});
       }},
      {"dropout",
       [](auto& g, DType t) {
         return g.op1("op", "dropout", {parameter(g, "x", {kB, kS, kF}, t)},
                      {{"p", 0.3}, {"key", std::string("drop")}});
       }},
      {"cross_entropy",
       [](auto& g, DType t) {
         const auto targets = g.input("targets", {kB, kS}, DType::kInt64);
         const auto out =
             g.op("op", "cross_entropy", {parameter(g, "x", {kB, kS, kV}, t), targets});
         return g.op1("loss_each", "sub", {out[0], out[1]});
       }},
      // A single normalised weight is 1 and its gradient 0: nothing to compare.
      {"mixture_of_experts_top_1", [](auto& g, DType t) { return mixture_case(g, t, 1, 0); }},
      {"mixture_of_two_switch", [](auto& g, DType t) { return mixture_case(g, t, 2, 0); }},
      {"mixture_of_groups",
       [](auto& g, DType t) {
         const Routed r(g, t, 2, 1, true);
         return g.op1("op", "moe_dispatch", {r.x, r.route[0], r.route[1]}, kSlots);
       }},
      {"mixture_of_experts_top_2", [](auto& g, DType t) { return mixture_case(g, t, 2); }},
      {"moe_dispatch_weighted",
       [](auto& g, DType t) {
         const Routed r(g, t, 2);
         return g.op1("op", "moe_dispatch", {r.x, r.route[0], r.route[1]}, kSlots);
       }},
      {"moe_slot_weight",
       [](auto& g, DType t) {
         const Routed r(g, t, 2);
         const auto made = g.op1("made", "moe_dispatch", {r.x, r.route[0]}, kSlots);
         const auto at_slots =
             g.op1("at_slots", "moe_slot_weight", {r.route[1], r.route[0]}, kSlots);
         return g.op1("op", "mul", {made, at_slots});
       }},
      {"moe_combine_plain",
       [](auto& g, DType t) {
         const Routed r(g, t, 2);
         const auto slots = parameter(g, "slots", {{"experts", 4}, kB, {"capacity", 2}, kF}, t);
         const auto y = g.op1("op", "moe_combine", {slots, r.route[0]});
         return g.op1("joined", "einsum", {y, r.x}, text("spec", "b s f, b s h+ -> b s f"));
       }},
      {"moe_balance",
       [](auto& g, DType t) {
         const Routed r(g, t, 2);
         const auto value =
             g.op1("op", "moe_balance", {r.probs, r.route[2]}, {{"top_k", int64_t{2}}});
         return g.op1(
             "wide", "einsum",
             {g.op1("cast", "cast", {value}, text("dtype", std::string(dtype_name(t)).c_str())),
              r.x},
             text("spec", "b, b s+ h+ -> b"));
       }},
      {"moe_z_loss",
       [](auto& g, DType t) {
         return g.op1("op", "moe_z_loss", {parameter(g, "x", {kB, kS, {"experts", 4}}, t)});
       }},
      {"embedding",
       [](auto& g, DType t) {
         const auto ids = g.input("targets", {kB, kS}, DType::kInt64);
         return g.op1("op", "embedding", {ids, parameter(g, "x", {kV, kH}, t)});
       }},
      {"embedding_bag",
       [](auto& g, DType t) {
         const auto ids = g.input("targets", {kB, kS, {"bag", 3}}, DType::kInt64);
         return g.op1("op", "embedding_bag", {ids, parameter(g, "x", {kV, kH}, t)});
       }},
      {"embedding_bag_mean",
       [](auto& g, DType t) {
         const auto ids = g.input("targets", {kB, kS, {"bag", 3}}, DType::kInt64);
         return g.op1("op", "embedding_bag", {ids, parameter(g, "x", {kV, kH}, t)},
                      text("mode", "mean"));
       }},
      {"embedding_bag_weighted",
       [](auto& g, DType t) {
         const Dim bag{"bag", 3};
         const auto ids = g.input("targets", {kB, kS, bag}, DType::kInt64);
         return g.op1("op", "embedding_bag",
                      {ids, parameter(g, "x", {kV, kH}, t), parameter(g, "w", {kB, kS, bag}, t)});
       }},
      {"reduce_sum",
       [](auto& g, DType t) {
         return g.op1("op", "reduce_sum", {parameter(g, "x", {kB, kS, kH}, t)},
                      {{"dims", std::string("b h")}, {"factor", 0.5}});
       }},
      {"equal",  // has no derivative
       [](auto& g, DType t) {
         const auto x = parameter(g, "x", {kB, kS, kH}, t);
         const auto constant = g.op1("constant", "stop_gradient", {x});
         const auto most = g.op1("most", "reduce_max", {constant}, text("dims", "s"));
         return g.op1("op", "mul", {x, g.op1("same", "equal", {constant, most})});
       }},
      {"reduce_max",
       [](auto& g, DType t) {
         return g.op1("op", "reduce_max", {parameter(g, "x", {kB, kS, kH}, t)},
                      text("dims", "b h"));
       }},
      {"reduce_max_of_equal",  // zeros, of which a row may have several
       [](auto& g, DType t) {
         const auto x = g.op1("zeros", "relu", {parameter(g, "x", {kB, kS, kH}, t)});
         return g.op1("op", "reduce_max", {x}, text("dims", "s"));
       }},
      {"broadcast_to",
       [](auto& g, DType t) {
         return g.op1("op", "broadcast_to", {parameter(g, "x", {kS}, t)},
                      text("dims", "b=3 s=5 h=8"));
       }},
      {"group",
       [](auto& g, DType t) {
         return g.op1(
             "op", "group", {parameter(g, "x", {kB, kS, kH}, t)},
             {{"first", int64_t{0}}, {"count", int64_t{2}}, {"name", std::string("rows")}});
       }},
      {"ungroup",
       [](auto& g, DType t) {
         return g.op1("op", "ungroup", {parameter(g, "x", {kB, kH}, t)},
                      {{"dim", std::string("h")}, {"names", std::string("x=4 y=2")}});
       }},
      {"transpose",
       [](auto& g, DType t) {
         return g.op1("op", "transpose", {parameter(g, "x", {kB, kS, kH}, t)},
                      text("dims", "h b s"));
       }},
      {"rename",
       [](auto& g, DType t) {
         return g.op1("op", "rename", {parameter(g, "x", {kB, kS}, t)},
                      {{"from", std::string("s")}, {"to", std::string("z")}});
       }},
      {"einsum_names_change_places",
       [](auto& g, DType t) {
         return einsum_case(g, t, {{"r", 3}, {"s", 3}, {"u", 3}}, {{"c", 4}},
                            "s u r, c -> c s u r");
       }},
      {"einsum_transposed_reading",
       [](auto& g, DType t) {
         return einsum_case(g, t, {{"r", 3}, {"s", 3}, kH}, {kH, kN}, "u r h+, h n -> n u r");
       }},
      {"rearrange",
       [](auto& g, DType t) {
         return g.op1("op", "rearrange", {parameter(g, "x", {kB, {"r", 6}, {"c", 4}, kH}, t)},
                      {{"spec", std::string("b (wr ir) (wc ic) h -> (b wr wc) (ir ic) h")},
                       {"sizes", std::string("ir=3 ic=2")},
                       {"dims", std::string("b s h")}});
       }},
      {"roll",
       [](auto& g, DType t) {
         return g.op1("op", "roll", {parameter(g, "x", {kB, kS, kH}, t)},
                      {{"dim", std::string("s")}, {"shift", int64_t{-2}}});
       }},
      {"sigmoid",
       [](auto& g, DType t) {
         return g.op1("op", "sigmoid", {parameter(g, "x", {kB, kH}, t)});
       }},
      {"div",
       [](auto& g, DType t) {
         const auto b = g.op1("positive", "exp", {parameter(g, "b", {kS, kH}, t)});
         return g.op1("op", "div", {parameter(g, "a", {kB, kS, kH}, t), b});
       }},
      {"log", [](auto& g, DType t) { return of_positive(g, t, "log"); }},
      {"sqrt", [](auto& g, DType t) { return of_positive(g, t, "sqrt"); }},
      {"cos",
       [](auto& g, DType t) {
         return g.op1("op", "cos", {parameter(g, "x", {kB, kH}, t)});
       }},
      {"sin",
       [](auto& g, DType t) {
         return g.op1("op", "sin", {parameter(g, "x", {kB, kH}, t)});
       }},
      {"in_evaluation",
       [](auto& g, DType t) {
         return g.op1("op", "in_evaluation",
                      {parameter(g, "x", {kB, kS, kH}, t), g.input("other", {kS}, t)});
       }},
      {"power",
       [](auto& g, DType t) {
         return of_positive(g, t, "power", {{"exponent", -1.5}});
       }},
      {"clamp",
       [](auto& g, DType t) {
         return g.op1("op", "clamp", {parameter(g, "x", {kB, kH}, t)},
                      {{"min", -0.25}, {"max", 0.5}});
       }},
      {"leaky_relu",
       [](auto& g, DType t) {
         return g.op1("op", "leaky_relu", {parameter(g, "x", {kB, kH}, t)}, {{"slope", 0.2}});
       }},
      {"where",
       [](auto& g, DType t) {
         return g.op1("op", "where",
                      {g.input("c", {kB, kS}, DType::kInt64), parameter(g, "a", {kB, kS, kH}, t),
                       parameter(g, "x", {kH}, t)});
       }},
      {"where_with_a_number",
       [](auto& g, DType t) {
         return g.op1("op", "where",
                      {g.input("c", {kB, kS, kH}, DType::kInt64), parameter(g, "a", {kS, kH}, t)},
                      {{"otherwise", -2.0}, {"negate", int64_t{1}}});
       }},
      {"pad",
       [](auto& g, DType t) {
         return g.op1("op", "pad", {parameter(g, "x", {kB, kS, kH}, t)},
                      {{"dim", std::string("s")},
                       {"begin", int64_t{2}},
                       {"size", int64_t{8}},
                       {"value", 0.5}});
       }},
      {"pad_of_uneven_blocks",  // of 3 and 2 elements, in blocks of 4 and 3
       [](auto& g, DType t) {
         return g.op1("op", "pad", {parameter(g, "x", {kB, kS, kH}, t)},
                      {{"dim", std::string("s")},
                       {"begin", int64_t{1}},
                       {"size", int64_t{4}},
                       {"blocks", int64_t{2}},
                       {"shorter", int64_t{1}},
                       {"value", 0.5}});
       }},
      {"gather_in_each_sample",
       [](auto& g, DType t) {
         return g.op1("op", "gather",
                      {parameter(g, "x", {kB, kV, kH}, t), g.input("ids", {kB, kF}, DType::kInt64)},
                      {{"dim", std::string("v")}});
       }},
      {"gather_along_the_last_dim",
       [](auto& g, DType t) {
         return g.op1("op", "gather",
                      {parameter(g, "x", {kB, kV}, t), g.input("ids", {kF, kP}, DType::kInt64)},
                      {{"dim", std::string("v")}});
       }},
      {"scatter_add",
       [](auto& g, DType t) {
         return g.op1("op", "scatter_add",
                      {parameter(g, "x", {kB, kF, kH}, t), g.input("ids", {kF}, DType::kInt64)},
                      {{"dim", std::string("v")}, {"dims", std::string("b=3 v=11 h=8")}});
       }},
      {"collect",
       [](auto& g, DType t) {
         const TensorId all =
             g.op1("op", "collect", {g.input("looked_up", {kB, kS, kH}, t)}, text("dim", "s"));
         return g.op1("product", "mul", {all, parameter(g, "x", {kB, kH}, t)});
       }},
      {"cumsum",
       [](auto& g, DType t) {
         return g.op1("op", "cumsum", {parameter(g, "x", {kB, kS, kH}, t)},
                      {{"dim", std::string("s")}});
       }},
      {"window_mask_in_another_order",
       [](auto& g, DType t) {
         const auto x = parameter(g, "x", {kB, {"seq", 7}, kN, {"kv", 7}}, t);
         return g.op1("op", "causal_mask", {x},
                      {{"order", std::string("zigzag:4")},
                       {"window", int64_t{3}},
                       {"gradient", int64_t{1}}});
       }},
      {"stop_gradient",
       [](auto& g, DType t) {
         const auto constant = g.op1("op", "stop_gradient", {g.input("c", {kB, kH}, t)});
         return g.op1("product", "mul", {constant, parameter(g, "x", {kB, kH}, t)});
       }},
      {"slice",
       [](auto& g, DType t) {
         return g.op1("op", "slice", {parameter(g, "x", {kB, kS, kH}, t)},
                      {{"dim", std::string("s")}, {"begin", int64_t{1}}, {"size", int64_t{3}}});
       }},
      {"concat",
       [](auto& g, DType t) {
         return g.op1("op", "concat",
                      {parameter(g, "x", {kB, kS}, t), parameter(g, "y", {kB, {"s", 2}}, t)},
                      text("dim", "s"));
       }},
      {"slice_of_blocks",
       [](auto& g, DType t) {
         return g.op1("op", "slice", {parameter(g, "x", {kB, kH, kF}, t)},
                      {{"dim", std::string("h")},
                       {"begin", int64_t{1}},
                       {"size", int64_t{2}},
                       {"blocks", int64_t{2}}});
       }},
      {"concat_of_blocks",
       [](auto& g, DType t) {
         return g.op1("op", "concat",
                      {parameter(g, "x", {kB, {"h", 4}}, t), parameter(g, "y", {kB, kH}, t)},
                      {{"dim", std::string("h")}, {"blocks", int64_t{4}}});
       }},
      {"slice_of_uneven_blocks",  // of 2, 2, 1, 1 elements
       [](auto& g, DType t) {
         return g.op1("op", "slice", {parameter(g, "x", {kB, {"h", 6}, kF}, t)},
                      {{"dim", std::string("h")},
                       {"begin", int64_t{1}},
                       {"size", int64_t{1}},
                       {"blocks", int64_t{4}}});
       }},
      {"concat_of_uneven_blocks",
       [](auto& g, DType t) {
         return g.op1("op", "concat",
                      {parameter(g, "x", {kB, {"h", 4}}, t), parameter(g, "y", {kB, {"h", 7}}, t)},
                      {{"dim", std::string("h")}, {"blocks", int64_t{4}}});
       }},
      {"segment_mask",
       [](auto& g, DType t) {
         const auto x = parameter(g, "x", {kB, {"seq", 7}, {"kv", 7}}, t);
         const auto segments = g.input("segments", {kB, {"seq", 7}}, DType::kInt64);
         return g.op1("op", "segment_mask", {x, segments, segments}, {{"gradient", int64_t{1}}});
       }},
      {"window_mask",
       [](auto& g, DType t) {
         const auto x = parameter(g, "x", {kB, {"seq", 7}, {"kv", 7}}, t);
         return g.op1("op", "causal_mask", {x},
                      {{"causal", int64_t{0}}, {"window", int64_t{3}}, {"gradient", int64_t{1}}});
       }},
      {"attention_of_the_last_queries",
       [](auto& g, DType t) {
         const auto q = parameter(g, "q", {kB, {"s", 3}, kN, kG, kD}, t);
         const auto k = parameter(g, "k", {kB, kS, kN, kD}, t),
                    v = parameter(g, "v", {kB, kS, kN, kD}, t);
         return g.op("op", "attention", {q, k, v}, {{"causal", int64_t{1}}})[0];
       }},
  };
}

}  // namespace

const std::vector<Case>& cases() {
  static const std::vector<Case> all = [] {
    std::vector<Case> every = general_cases();
    for (Case& one : image_cases()) every.push_back(std::move(one));
    for (Case& one : attention_cases()) every.push_back(std::move(one));
    for (Case& one : recurrence_cases()) every.push_back(std::move(one));
    for (Case& one : sparse_cases()) every.push_back(std::move(one));
    return every;
  }();
  return all;
}

const std::vector<Case>& large_cases() {
  static const std::vector<Case> all = {
      {"linear",
       [](auto& g, DType t) {
         return einsum_case(g, t, {{"b", 4}, {"s", 40}, {"h", 96}}, {{"h", 96}, {"f", 112}},
                            "b s h+, h f, f -> b s f", {{"f", 112}});
       }},
      {"linear_by_columns",
       [](auto& g, DType t) {
         return einsum_case(g, t, {{"s", 160}, {"h", 96}}, {{"f", 112}, {"h", 96}},
                            "s h+, f h -> f s");
       }},
      {"batched",
       [](auto& g, DType t) {
         return einsum_case(g, t, {{"b", 9}, {"s", 40}, {"h", 64}},
                            {{"b", 9}, {"h", 64}, {"f", 56}}, "b s h+, b h f -> b s f");
       }},
      {"attention_causal", [](auto& g, DType t) { return large_attention(g, t, true, 300, 1); }},
      {"attention_full", [](auto& g, DType t) { return large_attention(g, t, false, 150, 1); }},
      {"attention_grouped", [](auto& g, DType t) { return large_attention(g, t, true, 140, 2); }},
      {"attention_window", [](auto& g, DType t) { return attention_form(g, t, "cw", 300); }},
      {"attention_of_all_forms",
       [](auto& g, DType t) { return attention_form(g, t, "cwsbd", 150); }},
      {"attention_capped_with_a_sink",
       [](auto& g, DType t) { return attention_form(g, t, "cwsbtvl", 150); }},
  };
  return all;
}
// Returns the case's op, a loss that weighs its output by fixed random numbers, and the backward
// ops.
Graph build_graph(const Case& c, DType dtype, bool backward) {
  GraphBuilder g(c.name);
  const TensorId y = c.build(g, dtype);
  const std::vector<Dim> dims = g.tensor(y).dims;
  const DType type = g.tensor(y).dtype;
  std::string names;
  for (const Dim& dim : dims) names += dim.name + " ";
  const TensorId weights = g.input("weights", dims, type);
  const TensorId product = g.op1("weigh", "mul", {y, weights});
  g.graph().loss = g.op1("loss", "reduce_sum", {product}, {{"dims", names}});
  auto forward = g.finish();
  EXPECT_TRUE(forward.has_value()) << c.name << ": " << (forward ? "" : forward.error().message);
  if (!forward || !backward) return forward.value_or(Graph());
  OptimizerSpec none;
  none.kind = "none";
  auto graph = differentiate(*forward, none);
  EXPECT_TRUE(graph.has_value()) << c.name << ": " << (graph ? "" : graph.error().message);
  if (!graph || !c.expand) return graph.value_or(Graph());
  std::vector<OpId> expandable;
  for (const Op& op : graph->ops()) {
    if (op.info->expandable != nullptr) expandable.push_back(op.id);
  }
  EXPECT_FALSE(expandable.empty());
  auto expanded = expand_ops(*graph, expandable);
  EXPECT_TRUE(expanded.has_value()) << (expanded ? "" : expanded.error().message);
  return expanded.value_or(Graph());
}

void fill_inputs(Workspace& w, double high) {
  w.initialise();
  for (const Tensor& tensor : w.graph().tensors()) {
    if (tensor.producer.valid() || tensor.role == Role::kBuffer) continue;
    if (tensor.dtype == DType::kInt64) {
      std::vector<double> ids(static_cast<size_t>(tensor.elements()));
      const bool segments = tensor.name.starts_with("segments");  // of several tokens each
      for (size_t i = 0; i < ids.size(); ++i) {
        ids[i] = static_cast<double>(segments ? i / 2 % 2 : i * 7 % 11);
      }
      if (tensor.name == "targets" && w.graph().name == "cross_entropy") ids[2] = -1;  // ignored
      w.set(tensor.id, ids);
    } else {
      w.randomise(tensor.id, -high, high);
    }
  }
}
}  // namespace tessera::testing
