// The kinds that no case of test_kernel_cases.h has.
#include <gtest/gtest.h>

#include <string>

#include "tessera/runtime/kernels/test_kernel_cases.h"

namespace tessera::testing {
namespace {

Attributes text(const char* key, const char* value) { return {{key, std::string(value)}}; }

// The tensors from which the graph is made.
struct Others {
  explicit Others(DType t)
      : type(t), statistics(t == DType::kFloat64 ? t : DType::kFloat32), g("others") {}

  TensorId tensor(const char* name) { return g.input(name, {{"a", 3}, {"b", 4}}, type); }
  TensorId scalar(const char* name) { return g.input(name, {}, statistics); }
  std::string name(DType dtype) const { return std::string(dtype_name(dtype)); }

  void add_updates();
  void add_row_updates();
  void add_look_ups();

  DType type, statistics;
  GraphBuilder g;
  TensorId p = tensor("p"), gradient = tensor("g"), m = tensor("m"), v = tensor("v");
  TensorId rate = scalar("rate"), step = scalar("step"), clip = scalar("clip"),
           clear = scalar("skip_clear"), set = scalar("skip_set");
};

void Others::add_updates() {
  const Attributes decay = {{"weight_decay", 0.1}};
  g.op("adamw", "adamw", {p, gradient, m, v, scalar("lr"), step, clip}, decay);
  g.op("adamw_skipped", "adamw", {p, gradient, m, v, rate, step, clip, set}, decay);
  g.op("sgd", "sgd", {p, gradient, m, rate}, decay);
  g.op("sgd_ahead", "sgd", {p, gradient, m, rate, clip, clear}, {{"nesterov", int64_t{1}}});
  g.op("lion", "lion", {p, gradient, m, rate}, decay);
  g.op("lion_skipped", "lion", {p, gradient, m, rate, clip, set}, decay);
  g.op("lars", "lars", {p, gradient, m, rate, rate}, decay);
  g.op("lars_clipped", "lars", {p, gradient, m, rate, rate, clip, clear}, decay);
  g.op("adam_direction", "adam_direction", {p, gradient, m, v, step}, decay);
  g.op("adam_skipped", "adam_direction", {p, gradient, m, v, step, clip, set}, decay);
  g.op("momentum_direction", "momentum_direction", {p, gradient, m}, {{"nesterov", int64_t{1}}});
  g.op("momentum_clipped", "momentum_direction", {p, gradient, m, clip, clear});
  g.op("apply_update", "apply_update", {p, gradient, rate, rate}, decay);
  g.op("decayed_mean", "decayed_mean", {v, m, step});
  g.op("decayed_mean_skipped", "decayed_mean", {v, m, step, set});
  g.op("adagrad", "adagrad", {p, gradient, v, rate}, decay);
  const TensorId total = g.op1("total", "sum_squares", {gradient});
  g.op1("coefficient", "clip_coefficient", {total}, {{"max_norm", 0.5}});
  const TensorId narrow = g.input("narrow_total", {}, type);
  g.op1("narrow_coefficient", "clip_coefficient", {narrow}, {{"max_norm", 0.5}});
  g.op1("trust_ratio", "trust_ratio", {narrow, narrow}, decay);
  g.op1("trust_of_zero", "trust_ratio", {narrow, g.input("narrow_zero", {}, type), narrow}, decay);
  g.op1("adafactor_rate", "adafactor_rate", {narrow, narrow, narrow, narrow}, {{"elements", 3}});
  g.op1("unscaled", "unscale", {gradient, scalar("scale")},
        {{"dtype", name(type)}, {"factor", 0.5}});
  g.op1("unscaled_wide", "unscale", {gradient}, {{"dtype", name(statistics)}, {"factor", 0.5}});
  g.op1("flag", "non_finite", {gradient});
  g.op1("most", "max_n", {p, gradient, m});
  g.op1("wide", "cast", {p}, {{"dtype", name(statistics)}});
  g.op1("narrow", "cast", {scalar("statistic")}, {{"dtype", name(type)}});
  g.op1("filled", "fill", {},
        {{"dims", std::string("a=3 b=4")}, {"value", 0.3}, {"dtype", name(type)}});
  g.op1("largest", "reduce_max", {p}, text("dims", "b"));
  g.op1("dropped", "dropout", {p},
        {{"p", 0.5}, {"key", std::string("key")}, {"within", std::string("a=1/6/3 b=2/9/1")}});
  g.op1("collected", "collect", {p}, text("dim", "a"));
  g.op1("codes", "code_ids", {p});
  g.op1("carried", "carry", {p, gradient}, {{"keep", 0.9}, {"factor", 0.5}, {"offset", 0.1}});
  for (const char* flag : {"skip_clear", "skip_set"}) {
    std::vector<TensorId> state;
    for (const char* one : {"s0", "s1", "s2", "s3"})
      state.push_back(g.input(std::string(flag) + "." + one, {}, type));
    state.push_back(g.input(std::string(flag) + ".flag", {}, type));
    g.op(std::string(flag) + ".next", "loss_scale", state, {{"hysteresis", int64_t{1}}});
  }
}

void Others::add_row_updates() {
  const Dim rows{"rows", 11}, width{"width", 4}, samples{"samples", 3}, bag{"bag", 2};
  const auto table = [&](const char* of) { return g.input(of, {rows, width}, type); };
  const TensorId weight = table("weight"), first = table("first"), second = table("second");
  const TensorId ids = g.input("ids", {samples, bag}, DType::kInt64),
                 some = g.input("some_ids", {{"others", 9}, bag}, DType::kInt64),
                 single = g.input("single_ids", {samples}, DType::kInt64);
  const TensorId of_rows = g.input("of_rows", {rows}, type),
                 pooled = g.input("pooled", {samples, width}, type),
                 more = g.input("more", {{"others", 9}, width}, type),
                 of_ids = g.input("of_ids", {{"others", 9}, bag}, type);
  const Attributes modes = text("modes", "mean");
  g.op("row_sgd", "row_sgd", {weight, ids, pooled, rate}, modes);
  g.op("row_adagrad", "row_adagrad", {weight, second, ids, pooled, rate}, modes);
  g.op("rowwise_adagrad", "rowwise_adagrad", {weight, of_rows, ids, pooled, rate}, modes);
  g.op("row_adam", "row_adam", {weight, first, second, ids, pooled, rate, step}, modes);
  g.op1("row_squares", "row_sum_squares", {weight, ids, pooled}, modes);
  const TensorId squares = g.op1("squares", "row_squares", {weight, ids, pooled}, modes);
  g.op1("row_sums", "row_sums", {of_rows, ids, squares},
        {{"modes", std::string("ids")}, {"width", int64_t{4}}});
  g.op1("rowwise_step", "rowwise_step", {weight, of_rows, ids, pooled, rate}, modes);

  // Several look-ups, of which some places are empty or name rows of other pieces.
  const std::vector<TensorId> look_ups = {some, more, of_ids, single, pooled, some, more};
  const auto with = [&](std::vector<TensorId> tables, std::initializer_list<TensorId> scalars) {
    tables.insert(tables.end(), look_ups.begin(), look_ups.end());
    tables.insert(tables.end(), scalars);
    return tables;
  };
  Attributes all = {{"modes", std::string("weighted sum mean")},
                    {"within", std::string("rows=2/20/1")}};
  const TensorId of_all = g.op1("squares_of_all", "row_squares", with({weight}, {}), all);
  g.op1("sum_of_all", "row_sum_squares", with({weight}, {}), all);
  g.op1("sums_of_all", "row_sums", {of_rows, some, single, some, of_all, clip, clear},
        {{"modes", std::string("ids ids ids")},
         {"width", int64_t{4}},
         {"within", std::string("rows=2/20/1")}});
  all["rounding"] = std::string("stochastic");
  g.op("sgd_of_all", "row_sgd", with({weight}, {rate, clip, clear}), all);
  g.op("sgd_skipped", "row_sgd", with({weight}, {rate, clip, set}), all);
  g.op("adagrad_of_all", "row_adagrad", with({weight, second}, {rate, clip}), all);
  g.op("rowwise_of_all", "rowwise_adagrad", with({weight, of_rows}, {rate, clip}), all);
  g.op("adam_of_all", "row_adam", with({weight, first, second}, {rate, step, clip}), all);
  g.op1("step_of_all", "rowwise_step", with({weight, of_rows}, {rate, clip}), all);
}

// Makes look-ups with places that are empty or name rows of other pieces.
void Others::add_look_ups() {
  const Dim rows{"rows", 11}, width{"width", 4}, samples{"others", 9}, bag{"bag", 2};
  const TensorId ids = g.graph().find_tensor("some_ids"), table = g.graph().find_tensor("weight"),
                 dy = g.graph().find_tensor("more"), weights = g.graph().find_tensor("of_ids");
  const Attributes piece = text("within", "rows=2/20/1");
  for (const char* mode : {"sum", "mean"}) {
    Attributes of = piece;
    of["mode"] = std::string(mode);
    g.op1(std::string("bag_") + mode, "embedding_bag", {ids, table}, of);
  }
  g.op1("bag_weighted", "embedding_bag", {ids, table, weights}, piece);
  g.op1("looked_up", "embedding", {ids, table}, piece);
  g.op1("bag_weights_grad", "embedding_bag_weights_grad", {ids, table, dy}, piece);
}

}  // namespace

Graph other_kinds(DType dtype) {
  Others others(dtype);
  others.add_updates();
  others.add_row_updates();
  others.add_look_ups();
  auto graph = others.g.finish();
  EXPECT_TRUE(graph.has_value()) << (graph ? "" : graph.error().message);
  return graph.value_or(Graph());
}

void fill_others(Workspace& work) {
  const Graph& graph = work.graph();
  // Optimizers take roots of sums of squares, and of values that depend on the step.
  for (const char* name : {"v", "second", "of_rows", "narrow_total"})
    work.randomise(graph.find_tensor(name), 0.5, 1);
  work.randomise(graph.find_tensor("step"), 1, 2);
  for (const char* zero : {"narrow_zero", "skip_clear", "skip_clear.flag"})
    work.set(graph.find_tensor(zero), {0});
  for (const char* one : {"skip_set", "skip_set.flag"}) work.set(graph.find_tensor(one), {1});
  work.set(graph.find_tensor("some_ids"),
           {4, 7, -1, 4, 12, 4, 0, -1, 15, 3, -1, -1, 6, 6, 12, 2, 19, 5});
  work.set(graph.find_tensor("single_ids"), {4, -1, 8});
}

}  // namespace tessera::testing
