// Internal to the runtime: a model lowered without a backward pass, and its parameters read from
// weights; for what only looks at a model (sampling.h, predicting.h).
#pragma once

#include <vector>

#include "tessera/base/result.h"
#include "tessera/graph/graph.h"
#include "tessera/plan/plan.h"
#include "tessera/program/program.h"
#include "tessera/runtime/interpreter.h"
#include "tessera/state/source.h"

namespace tessera {

// What of a plan is about training is left out: the order of a step (one sample passes the stages one
// after the other, with its tokens in their order), what is computed again or kept for the backward
// pass, codecs, and entries about tensors that the forward graph lacks (states, gradients).
Plan forward_part(Plan plan, const Graph& graph);

// Does the source have every parameter of the graph in its shape? Errors lack the command's name.
Status check_weights(const Graph& graph, const TensorSource& source);

// Into the homes of this rank: the parameters, and what the weights have of running state.
Status load_parameters(RankExecutor& executor, const Graph& graph, const Program& program,
                       const TensorSource& source);

}  // namespace tessera
