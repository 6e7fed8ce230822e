// Implements Alpa's three algorithms (docs/planners/alpa.md): layers of ops, stages of layers,
// splits of ops. Each is a function of tables; where the tables come from (profiles, formulas) is
// not its business.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/search/published/one_hot.h"

namespace tessera::published {

// ---- Stages of layers (section 6) ----
// A stage is an interval of layers on a sub-mesh. The step takes
//   sum of the stages' seconds + (micro-batches - 1) * the slowest stage's
// and all devices must be used. The published method tries every bound on the slowest stage and
// solves a dynamic program over (stages left, layer, devices left) for each. Here one dynamic
// program keeps the Pareto fronts of (slowest, sum), which has the same answer without skipping
// bounds that lie close together. A first run keeps one point of each front; its plan is the bound
// above which the second run drops points. Work: choices * stages * devices * size of the fronts.
struct StageChoice {
  size_t first = 0, last = 0;      // layers, both included
  int64_t hosts = 1, devices = 1;  // of the sub-mesh: hosts, and devices on each
  double seconds = 0;              // forward and backward of one micro-batch
  // The number of stages that may follow: a stage with s followers keeps the activations of s + 1
  // micro-batches. Negative if the stage does not fit at all.
  int64_t most_later = 0;
};
struct StagesProblem {
  size_t layers = 1;
  int64_t devices = 1, micro_batches = 1;
  std::vector<StageChoice> choices;
  size_t stages = 0;  // the number of stages; 0: any number
};
struct StagesPlan {
  double seconds = 0, slowest = 0;
  std::vector<size_t> choices;  // in the order of the pipeline
};
// Returns the fastest plan; of plans that take equally long, one with the fewest stages. Returns
// none if nothing fits.
std::optional<StagesPlan> best_stages(const StagesProblem& problem);

// Returns how many stages may follow a stage that takes these bytes (same unit): a transient peak,
// what stays, and what each micro-batch in flight keeps.
int64_t most_later_stages(double available, double peak, double initial, double per_micro_batch);

// Returns the shapes (hosts, devices on each): 1 x 1, 1 x 2, 1 x 4 .. one host, 2 .. all hosts.
std::vector<std::pair<int64_t, int64_t>> submesh_shapes(int64_t hosts, int64_t devices);

// The first host and device of a sub-mesh. place_submeshes() places the largest first, parts of a
// host side by side. Errors: the sub-meshes do not fill the cluster without overlap.
struct Placement {
  int64_t host = 0, device = 0;
};
Result<std::vector<Placement>> place_submeshes(
    const std::vector<std::pair<int64_t, int64_t>>& shapes, int64_t hosts, int64_t devices);

// ---- Layers of ops (section 5) ----
// An op of a list that cluster_ops() cuts into `layers` runs so that the largest number of bytes
// that a run receives from earlier runs is least. Each run has at most (1 + imbalance) times the
// average FLOP and at least `least_heavy` heavy ops. Among equal cuts, the fewest bytes in all
// decide, then the most even numbers of ops.
struct ClusterOp {
  double flops = 0;
  bool heavy = true;
  struct Output {
    double bytes = 0;
    std::vector<size_t> readers;  // later ops
  };
  std::vector<Output> outputs;
};
struct ClusterProblem {
  std::vector<ClusterOp> ops;
  size_t layers = 1;
  double imbalance = 0.5;
  size_t least_heavy = 0;
};
struct ClusterPlan {
  double largest_bytes = 0, sum_bytes = 0;
  std::vector<size_t> ends;  // by layer: the op after its last one
};
std::optional<ClusterPlan> cluster_ops(const ClusterProblem& problem);

// ---- Splits of ops (section 7) ----
// A mesh of two axes. `alpha` is the latency of a collective on the axis, `beta` its time for a
// byte.
struct ShardingMesh {
  std::array<int64_t, 2> devices{1, 1};
  std::array<double, 2> alpha{1, 1}, beta{1, 0.1};
};
double all_reduce_cost(const ShardingMesh& mesh, size_t axis, double bytes);
double all_gather_cost(const ShardingMesh& mesh, size_t axis, double bytes);

// The dim of the tensor that each axis cuts, or none.
using ShardingSpec = std::array<std::optional<size_t>, 2>;
std::string to_string(const ShardingSpec& spec, size_t dims);  // "S0R"

// An op makes one tensor. Without operands it is an input or parameter. If its two operands both
// have other dims than the result, it is a product: dims that both have and the result lacks are
// summed, dims of all three are batch dims. Any other op is element by element. Its operands may
// lack dims of the result (a bias that is added), and a single operand may have more, which are
// summed.
struct ShardingOp {
  std::string name;
  std::vector<std::string> dims;
  std::vector<size_t> reads;      // earlier ops
  std::optional<size_t> updates;  // the parameter whose new value this op makes: both are cut alike
};
struct ShardingGraph {
  std::vector<std::pair<std::string, int64_t>> sizes;  // of the dims
  double element_bytes = 4;
  std::vector<ShardingOp> ops;
  // Ops keep only splits that cut this dim over axis 0, where they have it; parameters without it
  // stay whole.
  std::optional<std::string> forced_dim;
};
bool is_product(const ShardingGraph& graph, const ShardingOp& op);
// Says why an op of the graph has no sharding rule; empty if it has one.
std::string why_not_an_op(const ShardingGraph& graph, const ShardingOp& op);

struct ShardingChoice {
  ShardingSpec output;
  std::vector<ShardingSpec> operands;
  double communication = 0;  // inside the op
  double tie_break = 0;      // 2 for a whole parameter or input
};
struct ShardingPlan {
  double objective = 0;      // with tie-breaks
  double communication = 0;  // without
  std::vector<ShardingChoice> ops;
  bool proved = true;
  double bound = 0;    // no plan has a smaller objective
  std::string solver;  // that found the plan: "own" or "cbc"
};
// Returns the choices of each op; sharding_problem() makes the integer program over them. Where an
// axis divides no dim that it might cut, the dim stays whole on it.
std::vector<std::vector<ShardingChoice>> sharding_choices(const ShardingGraph& graph,
                                                          const ShardingMesh& mesh);
OneHotProblem sharding_problem(const ShardingGraph& graph, const ShardingMesh& mesh,
                               const std::vector<std::vector<ShardingChoice>>& choices);
// Returns the plan found by Tessera's own search, or by CBC where that gives up (one_hot_cbc.h).
// Returns none if nothing is allowed. If the search gave up before it found a plan, the objective
// is infinite and there are no ops.
std::optional<ShardingPlan> best_sharding(const ShardingGraph& graph, const ShardingMesh& mesh);
// A solver of the integer program; best_sharding() with a solver returns that solver's errors.
using OneHotSolver =
    std::function<Result<std::optional<OneHotAnswer>>(const OneHotProblem& problem)>;
Result<std::optional<ShardingPlan>> best_sharding(const ShardingGraph& graph,
                                                  const ShardingMesh& mesh,
                                                  const OneHotSolver& solve);

// ---- Sizes of the models that it was measured on (section 8) ----
struct AlpaModel {
  double layers = 1, hidden = 1, vocabulary = 1, sequence = 1, batch = 1;
  double experts = 0;   // of every second layer; 0: none
  double group = 2048;  // tokens that are routed together
  bool recompute = true;
};
double alpa_parameters(const AlpaModel& model);
double alpa_flops(const AlpaModel& model);  // of a step

}  // namespace tessera::published
