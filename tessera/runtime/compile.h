// Internal to the runtime: from texts (model, plan) to the programs of all ranks, what every
// session does first.
//
//   model, plan -> shape_forward -> differentiate -> prepare -> lower every rank -> verify
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tessera/models/model.h"
#include "tessera/program/lower.h"
#include "tessera/runtime/run_config.h"

namespace tessera {

struct CompileOptions {
  std::string model, plan;  // as users name them
  std::string beside;       // a file in whose folder a plan file may lie
  int64_t batch = 8;
  std::string precision =
      "float32";  // "float64"; "bfloat16", "float16" (computes in it, float32 weights)
  OptimizerConfig optimizer;
  bool fetch_gradients = false;  // keep "grad.<parameter>" to the end of the step
};
struct Compiled {
  Model model;                         // its graph is the forward graph
  std::shared_ptr<const Graph> graph;  // with backward and update, as lowered
  Plan plan;
  std::unique_ptr<Lowering> lowering;
  int ranks = 1;
};
Result<Compiled> compile(const CompileOptions& options);
// The same for a model and a plan in hand (options.model and options.plan are not read).
Result<Compiled> compile_model(Model model, Plan plan, const CompileOptions& options);

// Programs of all ranks, accepted by the verifier. memory_limit_bytes: of a rank's device arena; 0:
// none.
Result<std::vector<Program>> lower_and_verify(const Compiled& compiled,
                                              int64_t memory_limit_bytes = 0);

}  // namespace tessera
