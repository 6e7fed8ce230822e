// Reads instances of Galvatron (docs/reference/reproduce.md).
#include <fmt/format.h>

#include "tessera/base/text.h"
#include "tessera/planners/published/galvatron.h"
#include "tessera/planners/published/layer_chain.h"
#include "tessera/planners/published/systems.h"

namespace tessera::published {
namespace {

Status read_by_degree(const JsonTable& in, const std::string& key,
                      const std::vector<int64_t>& degrees, std::map<int64_t, double>& out) {
  TESSERA_TRY(const JsonTable table, in.table(key));
  for (const int64_t degree : degrees) {
    const std::string name = std::to_string(degree);
    TESSERA_TRY_VOID(table.require({name.c_str()}));
    TESSERA_TRY_VOID(table.real(name, out[degree], 0));
  }
  return table.done();
}

Result<GalvatronLayer> read_layer(const JsonTable& in) {
  GalvatronLayer layer;
  TESSERA_TRY_VOID(in.require({"parameters_mb", "forward_ms_per_sample", "activation_mb_per_sample",
                               "sequence", "hidden"}));
  TESSERA_TRY_VOID(in.whole("count", layer.count, 1, 4096));
  TESSERA_TRY_VOID(in.real("parameters_mb", layer.parameters_mb, 0));
  TESSERA_TRY_VOID(in.real("forward_ms_per_sample", layer.forward_ms, 0));
  TESSERA_TRY_VOID(
      read_by_degree(in, "activation_mb_per_sample", {1, 2, 4, 8}, layer.activation_mb));
  TESSERA_TRY_VOID(in.whole("sequence", layer.sequence, 1));
  TESSERA_TRY_VOID(in.whole("hidden", layer.hidden, 1));
  TESSERA_TRY_VOID(in.flag("cross_attention", layer.cross_attention));
  TESSERA_TRY_VOID(in.done());
  return layer;
}

Result<GalvatronModel> read_model(const JsonTable& in) {
  GalvatronModel model;
  std::string name;
  if (in.has("model")) {
    TESSERA_TRY_VOID(in.choice("model", name, galvatron_models()));
    model = *galvatron_model(name);
  } else {
    TESSERA_TRY_VOID(in.require({"layers", "micro_batches"}));
  }
  if (in.has("layers")) {
    TESSERA_TRY(const auto layers, in.tables("layers"));
    model.layers.clear();
    for (const JsonTable& item : layers) {
      TESSERA_TRY(model.layers.emplace_back(), read_layer(item));
    }
    if (layers.empty()) return in.error("layers", "expected at least one layer");
  }
  TESSERA_TRY_VOID(in.real("other_states_mb", model.other_states_mb, 0));
  TESSERA_TRY_VOID(in.real("other_activation_mb_per_sample", model.other_activation_mb, 0));
  TESSERA_TRY_VOID(in.real("overhead_ms", model.overhead_ms, 0));
  if (in.has("micro_batches")) {
    model.micro_batches = 1;
    TESSERA_TRY_VOID(in.real("micro_batches", *model.micro_batches, 0.001));
  }
  return model;
}

Result<GalvatronLinks> read_galvatron_links(const JsonTable& in) {
  GalvatronLinks links = rtx_titan_links();
  if (!in.has("links")) return links;
  TESSERA_TRY(const JsonTable table, in.table("links"));
  for (auto& [stages, group] : links) {
    const std::string key = std::to_string(stages);
    if (!table.has(key)) continue;
    TESSERA_TRY(const JsonTable row, table.table(key));
    std::vector<int64_t> degrees;
    for (int64_t degree = kGalvatronDevices / stages / 2; degree >= 2; degree /= 2) {
      degrees.push_back(degree);
    }
    TESSERA_TRY_VOID(row.require({"whole"}));
    TESSERA_TRY_VOID(row.real("whole", group.whole, 0));
    TESSERA_TRY_VOID(read_by_degree(row, "neighbours", degrees, group.neighbours));
    TESSERA_TRY_VOID(read_by_degree(row, "strided", degrees, group.strided));
    TESSERA_TRY_VOID(row.done());
  }
  TESSERA_TRY_VOID(table.done());
  return links;
}

Result<Json> count(const JsonTable& in) {
  int64_t devices = 0;
  bool mixed = false;
  bool checkpoint = false;
  TESSERA_TRY_VOID(in.require({"devices"}));
  TESSERA_TRY_VOID(in.whole("devices", devices, 1, 1 << 16));
  if ((devices & (devices - 1)) != 0) {
    return in.error("devices", fmt::format("expected a power of two, found {}", devices));
  }
  TESSERA_TRY_VOID(in.flag("data_and_sharded", mixed));
  TESSERA_TRY_VOID(in.flag("checkpoint", checkpoint));
  return Json{{"strategies", count_strategies(devices, mixed, checkpoint)}};
}

// Finds the best strategy for each layer of one stage from the seconds and bytes of each strategy,
// which the instance lists.
Result<Json> chain(const JsonTable& in) {
  TESSERA_TRY_VOID(in.require({"strategies", "layers", "memory", "change_seconds"}));
  TESSERA_TRY(const auto rows, in.tables("strategies"));
  ChainLayer layer;
  std::vector<std::string> names;
  for (const JsonTable& row : rows) {
    TESSERA_TRY_VOID(row.require({"name", "seconds", "memory"}));
    TESSERA_TRY_VOID(row.text("name", names.emplace_back()));
    TESSERA_TRY_VOID(row.real("seconds", layer.seconds.emplace_back(), 0));
    TESSERA_TRY_VOID(row.whole("memory", layer.memory.emplace_back()));
    TESSERA_TRY_VOID(row.done());
  }
  if (rows.empty()) return in.error("strategies", "expected at least one strategy");
  int64_t layers = 1;
  double change = 0;
  ChainProblem problem;
  TESSERA_TRY_VOID(in.whole("layers", layers, 1, 4096));
  TESSERA_TRY_VOID(in.whole("memory", problem.limit));
  TESSERA_TRY_VOID(in.real("change_seconds", change, 0));
  problem.layers.assign(static_cast<size_t>(layers), layer);
  problem.change = [&](size_t, size_t from, size_t to) { return from == to ? 0.0 : change; };
  const auto plan = best_chain(problem);
  if (!plan) return Json{{"fits", false}};
  Json chosen = Json::array();
  for (const size_t s : plan->strategies) chosen.push_back(names[s]);
  return Json{{"fits", true},
              {"seconds", plan->seconds},
              {"memory", plan->memory},
              {"layers", std::move(chosen)}};
}

Result<Json> costs(const JsonTable& in) {
  TESSERA_TRY(const GalvatronModel model, read_model(in));
  TESSERA_TRY(const GalvatronLinks links, read_galvatron_links(in));
  int64_t batch = 8;
  TESSERA_TRY_VOID(in.require({"batch"}));
  TESSERA_TRY_VOID(in.whole("batch", batch, 1, 1 << 20));
  Json layers = Json::array();
  for (const GalvatronLayer& layer : model.layers) {
    Json row;
    for (const GalvatronStrategy& strategy : strategies_of("full")) {
      const LayerCost cost = layer_cost(model, layer, links, strategy, batch);
      row[to_string(strategy)] = {{"memory_mb", cost.memory_mb},
                                  {"milliseconds", cost.seconds * 1e3}};
    }
    layers.push_back(std::move(row));
  }
  Json other;
  for (int64_t stages = 1; stages <= kGalvatronDevices; stages *= 2) {
    other[std::to_string(stages)] = other_memory_mb(model, stages, batch);
  }
  return Json{{"layers", std::move(layers)}, {"other_mb", std::move(other)}};
}

// Writes "2 x 1-8-1, 30 x 1-4*-2f".
std::string runs_text(const std::vector<GalvatronStrategy>& layers) {
  std::vector<std::string> runs;
  for (size_t i = 0; i < layers.size();) {
    size_t end = i;
    while (end < layers.size() && layers[end] == layers[i]) ++end;
    runs.push_back(fmt::format("{} x {}", end - i, to_string(layers[i])));
    i = end;
  }
  return join(runs, ", ");
}

Json galvatron_plan_json(const GalvatronPlan& plan) {
  Json stages = Json::array();
  for (const GalvatronStage& stage : plan.stage) {
    stages.push_back({{"layers", runs_text(stage.layers)},
                      {"memory_mb", stage.memory_mb},
                      {"left_mb", stage.left_mb}});
  }
  return {{"batch", plan.batch},
          {"samples_per_second", plan.throughput()},
          {"seconds", plan.seconds},
          {"pipeline", plan.stages},
          {"stages", std::move(stages)}};
}

// Reads the settings of the cut into stages (StageCut).
Status read_cut(const JsonTable& in, StageCut& cut) {
  std::string layers = "least";
  std::string other = "data_parallel";
  std::string context = "first_stage";
  TESSERA_TRY_VOID(in.choice("layer_weight", layers, {"least", "data_parallel"}));
  TESSERA_TRY_VOID(in.choice("other_weight", other, {"data_parallel", "stages"}));
  TESSERA_TRY_VOID(in.choice("context", context, {"first_stage", "every_stage"}));
  cut.layers_by_data_parallelism = layers == "data_parallel";
  cut.other_by_stages = other == "stages";
  cut.context_on_every_stage = context == "every_stage";
  return {};
}

Result<Json> plan(const JsonTable& in, const Progress& progress) {
  TESSERA_TRY_VOID(in.require({"memory_mb"}));
  GalvatronSearch search;
  TESSERA_TRY(search.model, read_model(in));
  TESSERA_TRY(search.links, read_galvatron_links(in));
  TESSERA_TRY_VOID(in.whole("memory_mb", search.memory_mb));
  std::string space = "full";
  TESSERA_TRY_VOID(in.choice("space", space, galvatron_spaces()));
  search.strategies = strategies_of(space);
  TESSERA_TRY_VOID(read_cut(in, search.cut));
  int64_t step = 8;
  int64_t most = 2048;
  TESSERA_TRY_VOID(in.whole("batch_step", step, 1, 1 << 20));
  TESSERA_TRY_VOID(in.whole("most_batch", most, 1, 1 << 20));
  Json batches = Json::array();
  std::optional<GalvatronPlan> best;
  int64_t largest = 0;
  for (int64_t batch = step; batch <= most; batch += step) {
    progress(fmt::format("batch {}", batch));
    const auto found = best_plan(search, batch);
    if (!found) break;
    largest = batch;
    batches.push_back(galvatron_plan_json(*found));
    if (!best || found->throughput() > best->throughput()) best = found;
  }
  return Json{{"space", space},
              {"memory_mb", search.memory_mb},
              {"fits", best.has_value()},
              {"largest_batch", largest},
              {"best", best ? galvatron_plan_json(*best) : Json()},
              {"batches", std::move(batches)}};
}

}  // namespace

Result<Json> run_galvatron(const JsonTable& in, const Progress& progress) {
  std::string ask = "plan";
  TESSERA_TRY_VOID(in.choice("ask", ask, {"plan", "costs", "strategies", "chain"}));
  if (ask == "strategies") return count(in);
  if (ask == "chain") return chain(in);
  if (ask == "costs") return costs(in);
  return plan(in, progress);
}

}  // namespace tessera::published
