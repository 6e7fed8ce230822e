// Lowers a model under a plan, for tests.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tessera/graph/builder.h"
#include "tessera/program/lower.h"

namespace tessera {

struct CompiledPlan {
  std::unique_ptr<Lowering> lowering;
  std::vector<Program> programs;  // by rank
  const Graph& graph() const { return lowering->graph(); }
};

// `plan`: the text of a plan, a plan file or a recipe call; `optimizer`: as differentiate() takes
// it. Without `programs` no rank is lowered.
Result<CompiledPlan> compile_model(const std::string& model, int64_t batch, const std::string& plan,
                                   const OptimizerSpec& optimizer = {}, bool programs = true);
// Does so for a forward graph.
Result<CompiledPlan> compile_graph(const Graph& forward, const std::string& plan,
                                   const OptimizerSpec& optimizer = {}, bool programs = true);

}  // namespace tessera
