// From what the user names (a model, a plan) to a lowering: the planning half of the library in the
// order of docs/concepts.md, without running anything.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tessera/graph/graph.h"
#include "tessera/models/model.h"
#include "tessera/plan/plan.h"
#include "tessera/program/lower.h"

namespace tessera::cli {

struct Planned {
  Model model;  // forward
  int64_t batch = 0;
  bool batch_is_default = false;
  DType compute = DType::kFloat32;  // --precision
  std::unique_ptr<Lowering> lowering;
  DType computes_in() const;  // of products and activations: --precision, or what the plan says
  const Graph& graph() const { return lowering->graph(); }  // as prepared for the plan
  const ResolvedPlan& plan() const { return lowering->plan(); }
};

// With backward and update ops (AdamW, clipping).
Result<Graph> training_graph(const Graph& forward);

// `batch` 0: one sequence for each replica and micro-batch of the plan. `precision`: as in
// RUN.toml.
Result<Planned> make_planned(const std::string& model, const std::string& plan, int64_t batch,
                             const std::string& precision = "float32");

}  // namespace tessera::cli
