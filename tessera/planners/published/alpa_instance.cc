// Reads instances of Alpa (docs/reference/reproduce.md).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tessera/base/infinity.h"
#include "tessera/planners/published/alpa.h"
#include "tessera/planners/published/one_hot_cbc.h"
#include "tessera/planners/published/systems.h"

namespace tessera::published {
namespace {

constexpr int64_t kMostLayers = 512;
constexpr int64_t kMostDevices = 4096;

Status read_mesh(const JsonTable& in, const std::string& key, int64_t& first, int64_t& second) {
  std::vector<int64_t> mesh;
  TESSERA_TRY_VOID(in.wholes(key, mesh, 1, kMostDevices));
  if (mesh.size() != 2) return in.error(key, "expected two numbers, as [1, 4]");
  first = mesh[0];
  second = mesh[1];
  return {};
}

struct Cluster {
  int64_t hosts = 1, devices = 1;  // hosts, and devices on each
};

// Adds a choice for every interval of layers on every sub-mesh, with seconds and memory by formula.
Status stages_by_formula(const JsonTable& in, const Cluster& cluster, StagesProblem& problem) {
  std::vector<double> seconds;
  double slowdown = 0;
  double parameters = 0;
  double activations = 0;
  double memory = -1;
  TESSERA_TRY_VOID(in.require({"layer_seconds"}));
  TESSERA_TRY_VOID(in.reals("layer_seconds", seconds, 0));
  TESSERA_TRY_VOID(in.real("slowdown_per_doubling", slowdown, 0));
  TESSERA_TRY_VOID(in.real("layer_parameters", parameters, 0));
  TESSERA_TRY_VOID(in.real("layer_activations", activations, 0));
  TESSERA_TRY_VOID(in.real("memory", memory, 0));
  TESSERA_TRY_VOID(in.done());
  if (seconds.empty() || seconds.size() > static_cast<size_t>(kMostLayers)) {
    return in.error("layer_seconds", fmt::format("expected 1 to {} numbers", kMostLayers));
  }
  problem.layers = seconds.size();
  for (const auto& [hosts, devices] : submesh_shapes(cluster.hosts, cluster.devices)) {
    const auto count = static_cast<double>(hosts * devices);
    for (size_t first = 0; first < seconds.size(); ++first) {
      double sum = 0;
      for (size_t last = first; last < seconds.size(); ++last) {
        sum += seconds[last];
        const auto layers = static_cast<double>(last - first + 1);
        StageChoice choice{
            first, last, hosts, devices, sum / count * (1 + slowdown * std::log2(count)), 1 << 20};
        if (memory >= 0) {
          choice.most_later = most_later_stages(memory, 0, layers * parameters / count,
                                                layers * activations / count);
        }
        problem.choices.push_back(choice);
      }
    }
  }
  return {};
}

Status stages_by_table(const JsonTable& in, const Cluster& cluster, StagesProblem& problem) {
  int64_t layers = 0;
  TESSERA_TRY_VOID(in.require({"layers"}));
  TESSERA_TRY_VOID(in.whole("layers", layers, 1, kMostLayers));
  problem.layers = static_cast<size_t>(layers);
  TESSERA_TRY(const auto rows, in.tables("stages"));
  for (const JsonTable& row : rows) {
    StageChoice choice;
    int64_t first = 0;
    int64_t last = 0;
    TESSERA_TRY_VOID(row.require({"first", "last", "mesh", "seconds"}));
    TESSERA_TRY_VOID(row.whole("first", first, 0, layers - 1));
    TESSERA_TRY_VOID(row.whole("last", last, first, layers - 1));
    TESSERA_TRY_VOID(read_mesh(row, "mesh", choice.hosts, choice.devices));
    const bool fits = choice.devices == cluster.devices
                          ? choice.hosts <= cluster.hosts
                          : choice.hosts == 1 && choice.devices < cluster.devices;
    if (!fits)
      return row.error("mesh", "expected a part of one host, or whole hosts of the cluster");
    TESSERA_TRY_VOID(row.real("seconds", choice.seconds, 0));
    choice.first = static_cast<size_t>(first);
    choice.last = static_cast<size_t>(last);
    choice.most_later = 1 << 20;
    TESSERA_TRY_VOID(row.whole("most_later", choice.most_later, -1, 1 << 20));
    if (row.has("memory")) {
      TESSERA_TRY(const JsonTable memory, row.table("memory"));
      double available = 0;
      double peak = 0;
      double initial = 0;
      double kept = 0;
      TESSERA_TRY_VOID(memory.require({"available", "initial", "per_micro_batch"}));
      TESSERA_TRY_VOID(memory.real("available", available, 0));
      TESSERA_TRY_VOID(memory.real("peak", peak, 0));
      TESSERA_TRY_VOID(memory.real("initial", initial, 0));
      TESSERA_TRY_VOID(memory.real("per_micro_batch", kept, 0));
      TESSERA_TRY_VOID(memory.done());
      choice.most_later = most_later_stages(available, peak, initial, kept);
    }
    TESSERA_TRY_VOID(row.done());
    problem.choices.push_back(choice);
  }
  return {};
}

Result<Json> stages(const JsonTable& in) {
  Cluster cluster;
  StagesProblem problem;
  TESSERA_TRY_VOID(in.require({"hosts", "devices_per_host", "micro_batches"}));
  TESSERA_TRY_VOID(in.whole("hosts", cluster.hosts, 1, 512));
  TESSERA_TRY_VOID(in.whole("devices_per_host", cluster.devices, 1, 64));
  if ((cluster.devices & (cluster.devices - 1)) != 0) {
    return in.error("devices_per_host",
                    fmt::format("expected a power of two, found {}", cluster.devices));
  }
  TESSERA_TRY_VOID(in.whole("micro_batches", problem.micro_batches, 1));
  problem.devices = cluster.hosts * cluster.devices;
  if (in.has("formula")) {
    TESSERA_TRY(const JsonTable formula, in.table("formula"));
    TESSERA_TRY_VOID(stages_by_formula(formula, cluster, problem));
  } else {
    TESSERA_TRY_VOID(in.require({"stages"}));
    TESSERA_TRY_VOID(stages_by_table(in, cluster, problem));
  }
  const auto plan = best_stages(problem);
  if (!plan) return Json{{"fits", false}};
  std::vector<std::pair<int64_t, int64_t>> shapes;
  for (const size_t c : plan->choices) {
    shapes.emplace_back(problem.choices[c].hosts, problem.choices[c].devices);
  }
  TESSERA_TRY(const auto places, place_submeshes(shapes, cluster.hosts, cluster.devices));
  Json rows = Json::array();
  for (size_t i = 0; i < plan->choices.size(); ++i) {
    const StageChoice& choice = problem.choices[plan->choices[i]];
    rows.push_back({{"first", choice.first},
                    {"last", choice.last},
                    {"mesh", {choice.hosts, choice.devices}},
                    {"seconds", choice.seconds},
                    {"host", places[i].host},
                    {"device", places[i].device}});
  }
  return Json{{"fits", true},
              {"seconds", plan->seconds},
              {"slowest", plan->slowest},
              {"stages", std::move(rows)}};
}

Result<size_t> find_name(const JsonTable& in, const std::string& key,
                         const std::vector<std::string>& names, const std::string& name) {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found != names.end()) return static_cast<size_t>(found - names.begin());
  return in.error(key, fmt::format("expected one of those before, found '{}'", name));
}

Result<Json> layers(const JsonTable& in) {
  ClusterProblem problem;
  int64_t count = 1;
  int64_t heavy = 0;
  TESSERA_TRY_VOID(in.require({"ops", "layers"}));
  TESSERA_TRY(const auto rows, in.tables("ops"));
  if (rows.size() > 4096) return in.error("ops", "expected at most 4096 ops");
  TESSERA_TRY_VOID(in.whole("layers", count, 1, static_cast<int64_t>(rows.size())));
  TESSERA_TRY_VOID(in.whole("least_heavy", heavy));
  TESSERA_TRY_VOID(in.real("imbalance", problem.imbalance, 0));
  problem.layers = static_cast<size_t>(count);
  problem.least_heavy = static_cast<size_t>(heavy);
  std::vector<std::string> names;
  // By name of a tensor: its op and the number of the output.
  std::vector<std::pair<size_t, size_t>> makers;
  for (size_t i = 0; i < rows.size(); ++i) {
    const JsonTable& row = rows[i];
    ClusterOp& op = problem.ops.emplace_back();
    std::vector<std::string> reads;
    TESSERA_TRY_VOID(row.require({"flops"}));
    TESSERA_TRY_VOID(row.real("flops", op.flops, 0));
    TESSERA_TRY_VOID(row.flag("heavy", op.heavy));
    TESSERA_TRY_VOID(row.texts("reads", reads));
    for (size_t r = 0; r < reads.size(); ++r) {
      TESSERA_TRY(const size_t at, find_name(row, fmt::format("reads[{}]", r), names, reads[r]));
      problem.ops[makers[at].first].outputs[makers[at].second].readers.push_back(i);
    }
    TESSERA_TRY(const JsonTable makes, row.table("makes_bytes"));
    for (const std::string& name : makes.keys()) {
      makers.emplace_back(i, problem.ops[i].outputs.size());
      names.push_back(name);
      TESSERA_TRY_VOID(makes.real(name, problem.ops[i].outputs.emplace_back().bytes, 0));
    }
    TESSERA_TRY_VOID(row.done());
  }
  const auto plan = cluster_ops(problem);
  if (!plan) return Json{{"fits", false}};
  return Json{{"fits", true},
              {"largest_bytes", plan->largest_bytes},
              {"sum_bytes", plan->sum_bytes},
              {"ends", plan->ends}};
}

Result<ShardingGraph> read_graph(const JsonTable& in) {
  ShardingGraph graph;
  TESSERA_TRY_VOID(in.require({"sizes", "ops"}));
  TESSERA_TRY(const JsonTable sizes, in.table("sizes"));
  for (const std::string& dim : sizes.keys()) {
    TESSERA_TRY_VOID(sizes.whole(dim, graph.sizes.emplace_back(dim, 1).second, 1));
  }
  TESSERA_TRY_VOID(in.real("element_bytes", graph.element_bytes, 0));
  TESSERA_TRY(const auto rows, in.tables("ops"));
  if (rows.empty()) return in.error("ops", "expected at least one op");
  std::vector<std::string> names;
  for (const JsonTable& row : rows) {
    ShardingOp op;
    std::vector<std::string> reads;
    std::string updates;
    TESSERA_TRY_VOID(row.require({"name", "dims"}));
    TESSERA_TRY_VOID(row.text("name", op.name));
    TESSERA_TRY_VOID(row.texts("dims", op.dims));
    for (size_t i = 0; i < op.dims.size(); ++i) {
      const bool known = std::any_of(graph.sizes.begin(), graph.sizes.end(),
                                     [&](const auto& size) { return size.first == op.dims[i]; });
      if (!known) {
        return row.error(fmt::format("dims[{}]", i),
                         fmt::format("expected a dim of 'sizes', found '{}'", op.dims[i]));
      }
    }
    TESSERA_TRY_VOID(row.texts("reads", reads));
    for (size_t r = 0; r < reads.size(); ++r) {
      TESSERA_TRY(const size_t at, find_name(row, fmt::format("reads[{}]", r), names, reads[r]));
      op.reads.push_back(at);
    }
    const std::string wrong = why_not_an_op(graph, op);
    if (!wrong.empty()) return row.error("reads", wrong);
    TESSERA_TRY_VOID(row.text("updates", updates));
    if (!updates.empty()) {
      TESSERA_TRY(op.updates, find_name(row, "updates", names, updates));
    }
    TESSERA_TRY_VOID(row.done());
    names.push_back(op.name);
    graph.ops.push_back(std::move(op));
  }
  if (in.has("forced_dim")) {
    TESSERA_TRY_VOID(in.text("forced_dim", graph.forced_dim.emplace()));
  }
  return graph;
}

// Reads which solver to use for the integer program: Tessera's own search and CBC if that reaches
// its limit, or one of them alone.
Result<OneHotSolver> read_solver(const JsonTable& in) {
  std::string solver = "auto";
  int64_t most_branches = OneHotProblem().most_branches;
  TESSERA_TRY_VOID(in.choice("solver", solver, {"auto", "own", "cbc"}));
  TESSERA_TRY_VOID(in.whole("most_branches", most_branches, 1));
  if (solver == "cbc") return OneHotSolver(solve_one_hot_by_cbc);
  const auto solve = solver == "own" ? solve_one_hot : solve_one_hot_by_either;
  return OneHotSolver([solve, most_branches](const OneHotProblem& problem) {
    OneHotProblem limited = problem;
    limited.most_branches = most_branches;
    return solve(limited);
  });
}

// Writes which solver found the answer of an integer program, whether the answer is proved to be
// the best and, if not, a bound on how much better another one may be.
void say_how_good(const std::string& solver, bool proved, double cost, double bound, Json& out) {
  out["solver"] = solver;
  out["proved"] = proved;
  out["bound"] = bound;
  out["gap"] = proved ? Json(0.0) : bound > 0 ? Json(cost / bound - 1) : Json();
  if (proved) return;
  out["note"] = fmt::format(
      "not proved optimal: the search ended at its limit of branches; no answer costs less than "
      "{:.9g}",
      bound);
}

// Returns the JSON for a search that reached its limit before it found an answer.
Json nothing_found(double bound) {
  Json out{{"fits", nullptr}};
  say_how_good("own", false, kInfinity, bound, out);
  return out;
}

Result<Json> sharding(const JsonTable& in) {
  TESSERA_TRY(const ShardingGraph graph, read_graph(in));
  ShardingMesh mesh;
  TESSERA_TRY_VOID(in.require({"mesh"}));
  TESSERA_TRY_VOID(read_mesh(in, "mesh", mesh.devices[0], mesh.devices[1]));
  for (const auto& [key, values] :
       {std::pair<const char*, std::array<double, 2>*>{"alpha", &mesh.alpha},
        {"beta", &mesh.beta}}) {
    std::vector<double> read(values->begin(), values->end());
    TESSERA_TRY_VOID(in.reals(key, read, 0));
    if (read.size() != 2) return in.error(key, "expected two numbers, one for each axis");
    *values = {read[0], read[1]};
  }
  TESSERA_TRY(const auto solve, read_solver(in));
  TESSERA_TRY(const auto plan, best_sharding(graph, mesh, solve));
  if (!plan) return Json{{"fits", false}};
  if (plan->ops.empty()) return nothing_found(plan->bound);
  Json ops;
  for (size_t v = 0; v < graph.ops.size(); ++v) {
    const size_t dims = graph.ops[v].dims.size();
    ops[graph.ops[v].name] = {{"spec", to_string(plan->ops[v].output, dims)},
                              {"communication", plan->ops[v].communication}};
  }
  Json out{{"fits", true}, {"objective", plan->objective}, {"communication", plan->communication}};
  say_how_good(plan->solver, plan->proved, plan->objective, plan->bound, out);
  out["ops"] = std::move(ops);
  return out;
}

Status read_limits(const JsonTable& in, const std::vector<std::string>& names,
                   OneHotProblem& problem) {
  TESSERA_TRY(const auto rows, in.tables("limits"));
  for (const JsonTable& row : rows) {
    TESSERA_TRY_VOID(row.require({"most", "memory"}));
    OneHotLimit limit;
    TESSERA_TRY_VOID(row.real("most", limit.most, 0));
    TESSERA_TRY(const JsonTable memory, row.table("memory"));
    for (const std::string& name : memory.keys()) {
      TESSERA_TRY(const size_t node, find_name(row, "memory." + name, names, name));
      limit.nodes.push_back(node);
      TESSERA_TRY_VOID(memory.reals(name, limit.amount.emplace_back(), 0));
      if (limit.amount.back().size() != problem.nodes[node].size()) {
        return memory.error(name, fmt::format("expected {} numbers, one for each strategy",
                                              problem.nodes[node].size()));
      }
    }
    TESSERA_TRY_VOID(row.done());
    problem.limits.push_back(std::move(limit));
  }
  return {};
}

Result<Json> strategies(const JsonTable& in) {
  OneHotProblem problem;
  std::vector<std::string> names;
  TESSERA_TRY_VOID(in.require({"nodes"}));
  TESSERA_TRY(const auto nodes, in.tables("nodes"));
  for (const JsonTable& row : nodes) {
    TESSERA_TRY_VOID(row.require({"name", "costs"}));
    TESSERA_TRY_VOID(row.text("name", names.emplace_back()));
    TESSERA_TRY_VOID(row.reals("costs", problem.nodes.emplace_back(), 0));
    if (problem.nodes.back().empty()) return row.error("costs", "expected at least one strategy");
    TESSERA_TRY_VOID(row.done());
  }
  TESSERA_TRY(const auto edges, in.tables("edges"));
  for (const JsonTable& row : edges) {
    OneHotEdge edge;
    std::string from;
    std::string to;
    TESSERA_TRY_VOID(row.require({"from", "to", "costs"}));
    TESSERA_TRY_VOID(row.text("from", from));
    TESSERA_TRY_VOID(row.text("to", to));
    TESSERA_TRY(edge.from, find_name(row, "from", names, from));
    TESSERA_TRY(edge.to, find_name(row, "to", names, to));
    if (edge.from == edge.to) return row.error("to", "expected another node than 'from'");
    TESSERA_TRY_VOID(row.matrix("costs", edge.cost, 0));
    const size_t width = edge.cost.empty() ? 0 : edge.cost[0].size();
    if (edge.cost.size() != problem.nodes[edge.from].size() ||
        width != problem.nodes[edge.to].size()) {
      return row.error(
          "costs",
          fmt::format("expected {} rows of {}, found {} of {}", problem.nodes[edge.from].size(),
                      problem.nodes[edge.to].size(), edge.cost.size(), width));
    }
    TESSERA_TRY_VOID(row.done());
    problem.edges.push_back(std::move(edge));
  }
  TESSERA_TRY_VOID(read_limits(in, names, problem));
  TESSERA_TRY(const auto solve, read_solver(in));
  TESSERA_TRY(const auto answer, solve(problem));
  if (!answer) return Json{{"fits", false}};
  if (answer->choices.empty()) return nothing_found(answer->bound);
  Json chosen;
  for (size_t v = 0; v < names.size(); ++v) chosen[names[v]] = answer->choices[v];
  Json out{{"fits", true}, {"cost", answer->cost}};
  say_how_good(answer->solver, answer->proved, answer->cost, answer->bound, out);
  out["branches"] = answer->branches;
  out["strategies"] = std::move(chosen);
  return out;
}

Result<Json> sizes(const JsonTable& in) {
  AlpaModel model;
  double seconds = 0;
  double devices = 1;
  TESSERA_TRY_VOID(in.require({"layers", "hidden", "vocabulary"}));
  TESSERA_TRY_VOID(in.real("layers", model.layers, 1));
  TESSERA_TRY_VOID(in.real("hidden", model.hidden, 1));
  TESSERA_TRY_VOID(in.real("vocabulary", model.vocabulary, 1));
  TESSERA_TRY_VOID(in.real("sequence", model.sequence, 1));
  TESSERA_TRY_VOID(in.real("batch", model.batch, 1));
  TESSERA_TRY_VOID(in.real("experts", model.experts, 0));
  TESSERA_TRY_VOID(in.real("group", model.group, 1));
  TESSERA_TRY_VOID(in.flag("recompute", model.recompute));
  TESSERA_TRY_VOID(in.real("seconds", seconds, 1e-9));
  TESSERA_TRY_VOID(in.real("devices", devices, 1));
  Json out{{"billion_parameters", alpa_parameters(model) / 1e9}, {"flops", alpa_flops(model)}};
  if (seconds > 0) out["tflops_per_device"] = alpa_flops(model) / seconds / devices / 1e12;
  return out;
}

}  // namespace

Result<Json> run_alpa(const JsonTable& in, const Progress& progress) {
  std::string ask = "stages";
  TESSERA_TRY_VOID(in.choice("ask", ask, {"stages", "layers", "sharding", "strategies", "sizes"}));
  progress(ask);
  if (ask == "layers") return layers(in);
  if (ask == "sharding") return sharding(in);
  if (ask == "strategies") return strategies(in);
  if (ask == "sizes") return sizes(in);
  return stages(in);
}

}  // namespace tessera::published
