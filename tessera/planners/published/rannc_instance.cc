// Reads instances of RaNNC (docs/reference/reproduce.md).
#include <fmt/format.h>

#include <algorithm>

#include "tessera/planners/published/rannc.h"
#include "tessera/planners/published/systems.h"

namespace tessera::published {
namespace {

struct Block {
  double forward_ms = 0, backward_ms = 0, out_mb = 0, parameters_mb = 0, activation_mb = 0;
};

// All inputs of a stage's cost but the stage itself.
struct StageCosts {
  std::vector<Block> blocks;
  int64_t batch = 1, outer = 1, micro_batches = 1;
  double memory_mb = 0, state_factor = 4, mb_per_ms = 1;

  int64_t samples(int64_t replicas) const {
    const int64_t parts = replicas * outer * micro_batches;
    return (batch + parts - 1) / parts;
  }
  std::optional<RanncStage> stage(size_t first, size_t last, int64_t replicas) const {
    const auto bs = static_cast<double>(samples(replicas));
    RanncStage out;
    double parameters = 0;
    double activations = 0;
    for (size_t b = first; b < last; ++b) {
      out.forward += blocks[b].forward_ms * bs;
      out.backward += blocks[b].backward_ms * bs;
      parameters += blocks[b].parameters_mb;
      activations += blocks[b].activation_mb * bs;
    }
    const double in_mb = first == 0 ? 0 : blocks[first - 1].out_mb;
    out.comm = (in_mb + blocks[last - 1].out_mb) * bs / mb_per_ms;
    const double memory =
        state_factor * parameters + activations + in_mb * bs * static_cast<double>(micro_batches);
    if (memory > memory_mb) return std::nullopt;
    return out;
  }
};

Result<StageCosts> read_costs(const JsonTable& in) {
  StageCosts costs;
  TESSERA_TRY_VOID(in.require({"blocks", "devices", "batch", "memory_mb", "mb_per_ms"}));
  TESSERA_TRY(const auto rows, in.tables("blocks"));
  for (const JsonTable& row : rows) {
    Block block;
    TESSERA_TRY_VOID(row.require({"forward_ms", "backward_ms"}));
    TESSERA_TRY_VOID(row.real("forward_ms", block.forward_ms, 0));
    TESSERA_TRY_VOID(row.real("backward_ms", block.backward_ms, 0));
    TESSERA_TRY_VOID(row.real("out_mb", block.out_mb, 0));
    TESSERA_TRY_VOID(row.real("parameters_mb", block.parameters_mb, 0));
    TESSERA_TRY_VOID(row.real("activation_mb", block.activation_mb, 0));
    TESSERA_TRY_VOID(row.done());
    costs.blocks.push_back(block);
  }
  if (rows.empty() || rows.size() > 64) return in.error("blocks", "expected 1 to 64 blocks");
  TESSERA_TRY_VOID(in.whole("batch", costs.batch, 1, 1 << 24));
  TESSERA_TRY_VOID(in.real("memory_mb", costs.memory_mb, 0));
  TESSERA_TRY_VOID(in.real("state_factor", costs.state_factor, 0));
  TESSERA_TRY_VOID(in.real("mb_per_ms", costs.mb_per_ms, 1e-9));
  return costs;
}

Json rannc_plan_json(const RanncPlan& plan, int64_t micro_batches, int64_t outer,
                     double all_reduce_ms) {
  const auto rannc_stages = static_cast<int64_t>(plan.stages.size());
  return {{"stages", rannc_stages},
          {"micro_batches", micro_batches},
          {"outer_replicas", outer},
          {"ends", plan.ends},
          {"replicas", plan.replicas},
          {"value_ms", plan.value},
          {"steps_ms", plan.value * static_cast<double>(micro_batches + rannc_stages - 1)},
          {"simulated_ms", synchronous_seconds(plan, micro_batches) + all_reduce_ms}};
}

// Finds stages by the published method and exactly, for every (stages, micro-batches) of the
// outer search.
Result<Json> rannc_stages(const JsonTable& in, const Progress& progress) {
  TESSERA_TRY(StageCosts costs, read_costs(in));
  int64_t devices = 1;
  int64_t nodes = 1;
  TESSERA_TRY_VOID(in.whole("devices", devices, 1, 4096));
  TESSERA_TRY_VOID(in.whole("nodes", nodes, 1, devices));
  if (devices % nodes != 0) {
    return in.error("nodes",
                    fmt::format("expected a divisor of devices = {}, found {}", devices, nodes));
  }
  int64_t fixed_stages = 0;
  int64_t fixed_micro = 0;
  bool all = false;
  double all_reduce = 0;
  TESSERA_TRY_VOID(in.whole("stages", fixed_stages, 1, devices));
  TESSERA_TRY_VOID(in.whole("micro_batches", fixed_micro, 1, costs.batch));
  TESSERA_TRY_VOID(in.flag("search_all", all));
  TESSERA_TRY_VOID(in.real("all_reduce_mb_per_ms", all_reduce, 0));

  Json solutions = Json::array();
  Json best;
  int64_t tried = 0;
  bool found = false;
  for (int64_t used = 1; used <= nodes && (all || !found); ++used) {
    if (nodes % used != 0) continue;
    RanncProblem problem;
    problem.blocks = costs.blocks.size();
    problem.devices = devices / nodes * used;
    costs.outer = nodes / used;
    const int64_t most = std::min(problem.devices, static_cast<int64_t>(costs.blocks.size()));
    for (int64_t s = fixed_stages == 0 ? tried + 1 : fixed_stages;
         s <= most && (all || !found) && (fixed_stages == 0 || s == fixed_stages); ++s) {
      tried = s;
      progress(fmt::format("{} stages on {} devices", s, problem.devices));
      problem.stages = static_cast<size_t>(s);
      for (int64_t m = fixed_micro == 0 ? 1 : fixed_micro;
           m <= std::min<int64_t>(costs.batch, 32) || m == fixed_micro; m *= 2) {
        costs.micro_batches = m;
        const int64_t parts = costs.outer * m;
        problem.most_replicas = (costs.batch + parts - 1) / parts;
        problem.stage = [&](size_t first, size_t last, int64_t replicas) {
          return costs.stage(first, last, replicas);
        };
        const auto published = published_stages(problem);
        const auto exact = exact_stages(problem);
        if (published) {
          double reduce_ms = 0;
          size_t first = 0;
          for (const size_t end : exact->ends) {
            double parameters = 0;
            for (; first < end; ++first) parameters += costs.blocks[first].parameters_mb;
            if (all_reduce > 0) reduce_ms = std::max(reduce_ms, parameters / all_reduce);
          }
          found = true;
          Json row{{"published", rannc_plan_json(*published, m, costs.outer, reduce_ms)},
                   {"optimum", rannc_plan_json(*exact, m, costs.outer, reduce_ms)}};
          if (best.is_null() || row["published"]["simulated_ms"] < best["simulated_ms"]) {
            best = row["published"];
          }
          solutions.push_back(std::move(row));
        }
        if (fixed_micro != 0) break;
      }
    }
  }
  return Json{{"fits", found}, {"best", std::move(best)}, {"solutions", std::move(solutions)}};
}

// Finds blocks of a graph of components. The oracle is the sum of the components' seconds plus
// a constant.
Result<Json> blocks(const JsonTable& in) {
  RanncGraph graph;
  BlockOptions options;
  std::vector<double> seconds;
  std::vector<double> memory;
  double constant = 0;
  double limit = 0;
  int64_t most = 32;
  int64_t least = 5;
  TESSERA_TRY_VOID(in.require({"seconds", "edges"}));
  TESSERA_TRY_VOID(in.reals("seconds", seconds, 0));
  if (seconds.size() > 4096) return in.error("seconds", "expected at most 4096 components");
  memory.assign(seconds.size(), 0);
  TESSERA_TRY_VOID(in.reals("memory", memory, 0));
  if (memory.size() != seconds.size()) {
    return in.error("memory",
                    fmt::format("expected {} numbers, found {}", seconds.size(), memory.size()));
  }
  TESSERA_TRY_VOID(in.real("memory_limit", limit, 0));
  TESSERA_TRY_VOID(in.real("constant_seconds", constant, 0));
  TESSERA_TRY_VOID(in.whole("most_blocks", most, 1, 4096));
  TESSERA_TRY_VOID(in.whole("least_blocks", least, 1, 4096));
  TESSERA_TRY_VOID(in.real("bytes_per_second", options.bytes_per_second, 1));
  TESSERA_TRY_VOID(in.real("parts", options.parts, 1));
  options.most = static_cast<size_t>(most);
  options.least = static_cast<size_t>(least);
  graph.components = seconds.size();
  TESSERA_TRY(const auto rows, in.tables("edges"));
  for (const JsonTable& row : rows) {
    int64_t from = 0;
    int64_t to = 0;
    double bytes = 0;
    const auto last = static_cast<int64_t>(seconds.size()) - 1;
    TESSERA_TRY_VOID(row.require({"from", "to"}));
    TESSERA_TRY_VOID(row.whole("from", from, 0, last));
    TESSERA_TRY_VOID(row.whole("to", to, from + 1, last));
    TESSERA_TRY_VOID(row.real("bytes", bytes, 0));
    TESSERA_TRY_VOID(row.done());
    graph.edges.push_back({static_cast<size_t>(from), static_cast<size_t>(to), bytes});
  }
  const auto sum = [](const std::vector<double>& of, const std::vector<size_t>& members) {
    double total = 0;
    for (const size_t c : members) total += of[c];
    return total;
  };
  const BlockOracle oracle{
      [&](const std::vector<size_t>& members) { return constant + sum(seconds, members); },
      [&](const std::vector<size_t>& members) {
        return !in.has("memory_limit") || sum(memory, members) <= limit;
      }};
  Json out = Json::array();
  for (const auto& members : rannc_blocks(graph, oracle, options)) {
    out.push_back({{"components", members}, {"seconds", oracle.seconds(members)}});
  }
  return Json{{"blocks", std::move(out)}};
}

Result<Json> components(const JsonTable& in) {
  std::vector<RanncTask> tasks;
  TESSERA_TRY_VOID(in.require({"tasks"}));
  TESSERA_TRY(const auto rows, in.tables("tasks"));
  for (const JsonTable& row : rows) {
    std::vector<int64_t> reads;
    RanncTask task;
    TESSERA_TRY_VOID(row.wholes("reads", reads, 0, static_cast<int64_t>(tasks.size()) - 1));
    TESSERA_TRY_VOID(row.flag("constant", task.constant));
    TESSERA_TRY_VOID(row.done());
    task.reads.assign(reads.begin(), reads.end());
    for (const size_t read : task.reads) {
      if (task.constant && !tasks[read].constant) {
        return row.error("constant", fmt::format("task {} that it reads is not constant", read));
      }
    }
    tasks.push_back(std::move(task));
  }
  return Json{{"components", atomic_components(tasks)}};
}

Result<Json> batches(const JsonTable& in) {
  int64_t batch = 1;
  int64_t micro = 1;
  int64_t replicas = 1;
  TESSERA_TRY_VOID(in.require({"batch", "micro_batches", "replicas"}));
  TESSERA_TRY_VOID(in.whole("batch", batch, 1, 1 << 24));
  TESSERA_TRY_VOID(in.whole("micro_batches", micro, 1, 4096));
  TESSERA_TRY_VOID(in.whole("replicas", replicas, 1, 4096));
  return Json{{"samples", split_batch(batch, micro, replicas)}};
}

// Returns sizes by the constants of the published program: 10 GiB/s for all-reduces, two optimizer
// values a parameter.
Result<Json> units(const JsonTable& in) {
  double bytes = 0;
  TESSERA_TRY_VOID(in.require({"parameter_bytes"}));
  TESSERA_TRY_VOID(in.real("parameter_bytes", bytes, 0));
  constexpr double kAllReduce = 10.0 * (int64_t{1} << 30);
  return Json{{"all_reduce_us", static_cast<int64_t>(bytes / kAllReduce * 1e6)},
              {"optimizer_bytes", 2 * bytes}};
}

}  // namespace

Result<Json> run_rannc(const JsonTable& in, const Progress& progress) {
  std::string ask = "stages";
  TESSERA_TRY_VOID(in.choice("ask", ask, {"stages", "blocks", "components", "batches", "units"}));
  if (ask == "blocks") return blocks(in);
  if (ask == "components") return components(in);
  if (ask == "batches") return batches(in);
  if (ask == "units") return units(in);
  return rannc_stages(in, progress);
}

}  // namespace tessera::published
