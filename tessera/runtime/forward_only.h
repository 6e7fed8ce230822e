// Internal to the runtime: a model lowered without a backward pass, and its parameters read from
// weights, for uses that do not train (sampling.h, predicting.h).
#pragma once

#include <vector>

#include "tessera/base/result.h"
#include "tessera/graph/graph.h"
#include "tessera/plan/plan.h"
#include "tessera/program/program.h"
#include "tessera/runtime/interpreter.h"
#include "tessera/state/source.h"

namespace tessera {

// Returns the plan without its parts about training: the order of a step (one sample passes the
// stages one after the other, with its tokens in their order), what is computed again or kept for
// the backward pass, codecs, and entries about tensors that the forward graph lacks (states,
// gradients).
Plan forward_part(Plan plan, const Graph& graph);

// Checks that the source has every parameter of the graph in its shape. Errors lack the command's
// name.
Status check_weights(const Graph& graph, const TensorSource& source);

// Loads the parameters, and any running state that the weights have, into the homes of this rank.
Status load_parameters(RankExecutor& executor, const Graph& graph, const Program& program,
                       const TensorSource& source);

}  // namespace tessera
