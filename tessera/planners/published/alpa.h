// Implements Alpa's three algorithms (docs/planners/alpa.md): layers of ops, stages of layers,
// splits of ops. Each algorithm is a function of tables of costs, which may come from profiles or
// from formulas.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/planners/published/one_hot.h"

namespace tessera::published {

// ---- Stages of layers (section 6) ----
// A stage is an interval of layers on a sub-mesh. The step takes
//   sum of the stages' seconds + (micro-batches - 1) * the slowest stage's
// and all devices must be used. The published method tries every bound on the slowest stage, skips
// bounds that are nearly equal, and solves a dynamic program over (stages left, layer, devices
// left) for each. Here one dynamic program keeps the Pareto fronts of (slowest, sum), which gives
// the answer without skipping any bound. A first run keeps one point of each front; the time of its
// plan is the bound above which the second run drops points. Work: choices * stages * devices *
// size of the fronts.
struct StageChoice {
  size_t first = 0, last = 0;      // layers, both included
  int64_t hosts = 1, devices = 1;  // of the sub-mesh: hosts, and devices on each
  double seconds = 0;              // forward and backward of one micro-batch
  // The most stages that may follow this one, because a stage with s later stages keeps the
  // activations of s + 1 micro-batches. Negative if the stage does not fit at all.
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

// Returns StageChoice::most_later for a stage on devices with `available` bytes that needs `peak`
// bytes for a short time, `initial` bytes all the time, and `per_micro_batch` bytes for each
// micro-batch in flight.
int64_t most_later_stages(double available, double peak, double initial, double per_micro_batch);

// Returns the shapes (hosts, devices on each): 1 x 1, 1 x 2, 1 x 4 .. one host, 2 .. all hosts.
std::vector<std::pair<int64_t, int64_t>> submesh_shapes(int64_t hosts, int64_t devices);

// The first host and device of a sub-mesh. place_submeshes() places the largest sub-meshes first,
// and sub-meshes smaller than a host next to each other. Errors: the sub-meshes do not fill the
// cluster exactly.
struct Placement {
  int64_t host = 0, device = 0;
};
Result<std::vector<Placement>> place_submeshes(
    const std::vector<std::pair<int64_t, int64_t>>& shapes, int64_t hosts, int64_t devices);

// ---- Layers of ops (section 5) ---- cluster_ops() cuts a list of ops into `layers` runs. It
// minimises the largest number of bytes that a run receives from earlier runs. Each run has at
// most (1 + imbalance) times the average FLOP and at least `least_heavy` heavy ops. Among equal
// cuts the one with the fewest received bytes in all is taken, then the one with the most even
// numbers of ops.
struct ClusterOp {
  double flops = 0;
  bool heavy = true;
  struct Output {
    double bytes = 0;
    std::vector<size_t> readers;  // later ops that read the output
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

// For each axis the number of the tensor's dim that it cuts, or nothing.
using ShardingSpec = std::array<std::optional<size_t>, 2>;
std::string to_string(const ShardingSpec& spec, size_t dims);  // "S0R"

// An op makes one tensor. An op without operands is an input or a parameter. An op with two
// operands whose dims both differ from the result's is a product: it sums over the dims that both
// operands have and the result lacks, and dims of all three are batch dims. Any other op works
// element by element. Its operands may lack dims of the result (as an added bias does). A single
// operand may have dims that the result lacks, over which the op sums.
struct ShardingOp {
  std::string name;
  std::vector<std::string> dims;
  std::vector<size_t> reads;  // earlier ops
  // The parameter whose new value this op makes, and which must be cut like it.
  std::optional<size_t> updates;
};
struct ShardingGraph {
  std::vector<std::pair<std::string, int64_t>> sizes;  // names and sizes of the dims
  double element_bytes = 4;
  std::vector<ShardingOp> ops;
  // If set, ops that have this dim keep only the splits that cut it over axis 0, and parameters
  // without it stay whole.
  std::optional<std::string> forced_dim;
};
bool is_product(const ShardingGraph& graph, const ShardingOp& op);
// Returns why an op of the graph has no sharding rule; "" if it has one.
std::string why_not_an_op(const ShardingGraph& graph, const ShardingOp& op);

struct ShardingChoice {
  ShardingSpec output;
  std::vector<ShardingSpec> operands;
  double communication = 0;  // communication inside the op
  double tie_break = 0;      // 2 for a whole parameter or input
};
struct ShardingPlan {
  double objective = 0;      // the cost with tie-breaks
  double communication = 0;  // the cost of communication alone
  std::vector<ShardingChoice> ops;
  bool proved = true;
  double bound = 0;    // a lower bound of the objective of all plans
  std::string solver;  // the solver that found the plan: "own" or "cbc"
};
// Returns the choices of each op; sharding_problem() makes the integer program over them. If the
// size of an axis divides no dim that the axis might cut, the op stays whole over this axis.
std::vector<std::vector<ShardingChoice>> sharding_choices(const ShardingGraph& graph,
                                                          const ShardingMesh& mesh);
OneHotProblem sharding_problem(const ShardingGraph& graph, const ShardingMesh& mesh,
                               const std::vector<std::vector<ShardingChoice>>& choices);
// Returns the plan that Tessera's own search finds or, if that search reaches its limit, CBC
// (one_hot_cbc.h). Returns nothing if no plan is allowed. If the limit was reached before any plan
// was found, the objective is infinite and there are no ops.
std::optional<ShardingPlan> best_sharding(const ShardingGraph& graph, const ShardingMesh& mesh);
// A solver of the integer program, which best_sharding() may be given. Errors of the solver are
// then returned.
using OneHotSolver =
    std::function<Result<std::optional<OneHotAnswer>>(const OneHotProblem& problem)>;
Result<std::optional<ShardingPlan>> best_sharding(const ShardingGraph& graph,
                                                  const ShardingMesh& mesh,
                                                  const OneHotSolver& solve);

// ---- Sizes of the models on which Alpa was measured (section 8) ----
struct AlpaModel {
  double layers = 1, hidden = 1, vocabulary = 1, sequence = 1, batch = 1;
  double experts = 0;   // number of experts of every second layer; 0: none
  double group = 2048;  // tokens that are routed together
  bool recompute = true;
};
double alpa_parameters(const AlpaModel& model);
double alpa_flops(const AlpaModel& model);  // FLOP of a step

}  // namespace tessera::published
