// Speeds of plans on the placements of a shared cluster: for each placement, what a step takes under
// plans that are given, or under the plan that the planner `auto` finds. The machine, style,
// precision and constants are decided as `simulate` decides them (pricing.h), and each rank is priced
// on the device on which it would be, so a step costs what `simulate` says.
//
//   SpeedQuestion question{.model = spec, .named = "gpt:layers=24", .cluster = machine, .batch = 16};
//   question.plans = {{"ga", "data_parallel({}, micro_batches={micro})"}};
//   question.placements = {{1}, {8}, {4, 4}};
//   TESSERA_TRY(const Speeds speeds, find_speeds(question));
//   write_file("gpt.csv", to_csv(speeds));   // a table that `cluster simulate --throughputs` reads
//
// A placement is a list of GPUs by node, the most first: {2, 2} are two GPUs on each of two nodes.
// They are the first devices of their nodes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tessera/cli/with_planning/pricing.h"
#include "tessera/graph/builder.h"

namespace tessera::cli {

// A plan as a user writes it. In `text` {} stands for the number of GPUs, and {micro} for the number
// of micro-batches (1, 2, 4, ...) that is the fastest of those that fit into memory. The text "auto"
// asks the planner.
struct NamedPlan {
  std::string name, text;
};

struct SpeedQuestion {
  std::string model, named;  // the text with which the model is built, and as the user names it
  Cluster cluster;           // of equal nodes
  int64_t batch = 0;
  PricingOptions pricing;
  OptimizerSpec optimizer = {};
  std::vector<NamedPlan> plans;
  std::vector<std::vector<int>> placements;
  std::function<void(const std::string&)> progress = {};  // told what is being priced; may be empty
};

struct SpeedRow {
  std::string plan;  // its name
  std::vector<int> placement;
  double step_s = 0;
  int64_t memory_bytes = 0;  // of the device that needs the most, upper bound
  // Bytes that the plan keeps from step to step (parameters, states of the optimizer): each element
  // once, and on the device that keeps the most.
  int64_t state_bytes = 0, gpu_state_bytes = 0;
  std::string text;  // the plan with its numbers, as --plan takes it
};

struct Speeds {
  std::vector<SpeedRow> rows;  // by placement, in the order of the question
  std::vector<std::string>
      left_out;  // plans that do not run on a placement, and why; one line each
};

// Prices every plan on every placement. A plan of a fixed number of ranks is priced where there are
// so many GPUs. Errors: a cluster of unequal nodes; a placement that the cluster does not have; a
// plan that cannot be read, or that no placement can run for a reason other than its memory.
Result<Speeds> find_speeds(const SpeedQuestion& question);

// Returns the number of GPUs on as few nodes as possible.
std::vector<int> packed_placement(int64_t gpus, int64_t gpus_a_node);
// Writes a placement as the tables have it: "233"; with more than nine GPUs on a node "16+16".
std::string placement_text(const std::vector<int>& placement);
// Reads such a text. Error: another form.
Result<std::vector<int>> parse_placement(const std::string& text);

// Writes the rows as CSV with the columns exec_plan, placement, iter_time, memory_bytes, state_bytes,
// gpu_state_bytes, plan.
std::string to_csv(const Speeds& speeds);

}  // namespace tessera::cli
