// Internal to the runtime: helpers for runs that do not train (sampling.h, predicting.h): a plan
// without its parts about training, and the model's parameters read from given weights.
#pragma once

#include <vector>

#include "tessera/base/result.h"
#include "tessera/graph/graph.h"
#include "tessera/plan/plan.h"
#include "tessera/program/program.h"
#include "tessera/runtime/step/interpreter.h"
#include "tessera/state/source.h"

namespace tessera {

// Returns the plan without its parts about training. Removed are the schedule and the micro-batches
// (the batch then passes the stages one after the other), `reorder` entries (tokens then keep their
// order), the recomputation, what is kept for the backward pass, codecs, and entries about tensors
// that the forward graph lacks (states, gradients).
Plan forward_part(Plan plan, const Graph& graph);

// Checks that the source has every parameter of the graph with the graph's shape. The error text
// does not begin with the name of a command; the caller adds the name.
Status check_weights(const Graph& graph, const TensorSource& source);

// Loads the parameters into the homes of this rank, and also the running states that the
// source has.
Status load_parameters(RankExecutor& executor, const Graph& graph, const Program& program,
                       const TensorSource& source);

}  // namespace tessera
