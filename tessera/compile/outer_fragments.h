// Compiles the outer steps of a plan (plan/outer_steps.h). An outer step is the training step of a
// small graph of its own, which is lowered, verified, simulated and run as any other: its batch is
// the islands. For each parameter w it computes
//
//   apart.w       = local.w - w               [island, dims of w]   each island's difference
//   apart.w.mean  = -sum over islands / R     [dims of w]           the pseudo-gradient
//   w             = optimizer(w, pseudo-gradient)
//
// where `w` is the value that all islands had after the last outer step, and `local.w` is an input:
// the parameters of the islands. The plan of the graph cuts the dim `island` over the axis of the
// islands and every parameter as it rests inside an island. Ranks that hold the same part of a
// parameter in an island share the work, so that each sends only its share over the slow link.
//
//   TESSERA_TRY(const auto fragments, compile_outer(plan, *lowering_of_island_0));
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tessera/plan/plan.h"
#include "tessera/program/lower.h"

namespace tessera {

inline constexpr std::string_view kIslandDim = "island";
inline constexpr std::string_view kLocalPrefix = "local.";  // of the inputs of the graph

// A part of the parameters, which has its outer steps at the same time. `parameters`: their names,
// which are those of the inner graph.
struct OuterFragment {
  std::vector<std::string> parameters;
  std::shared_ptr<const Lowering> lowering;  // of the outer graph, on the ranks of all islands
};

// Returns the fragments in the order of their turns. `inner`: the lowering of the plan of an
// island. Errors, with file:line: more fragments than the model has blocks; a parameter that rests
// in a way in which it cannot be cut (at one coordinate of an axis).
Result<std::vector<OuterFragment>> compile_outer(const Plan& plan, const Lowering& inner);

}  // namespace tessera
