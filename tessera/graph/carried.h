// Running state: buffers that the program itself changes once a step (running statistics of batch
// norm, a queue of soft labels). A forward graph describes the change by update ops among its
// forward ops, whose outputs are new values of buffers:
//
//   const TensorId mean = g.buffer("bn.running_mean", {channels}, {Init::Kind::kZeros, 0});
//   ... forward ops read `mean`, and make `now`, this step's mean over all samples ...
//   carry(g, mean, now, {.keep = 0.9});     // mean' = 0.9 mean + 0.1 now, after the step
//
// Rules:
//   - Every op of a step reads the value that the step before left; the first step reads Init.
//   - Nothing is trained through it: buffers have no gradient.
//   - There is one change a step, however many micro-batches it has. A value that a forward op sums
//     over the batch is the sum over all of them. So a buffer cannot have the dim that they cut:
//     values that it keeps for each sample need micro_batches = 1.
//   - An update op is cut as its buffer rests, which is as the buffer's first reader reads it.
//   - The changes are no part of a loop or of the precision of a plan: transforms of the forward
//     graph and `differentiate` take them out and put them back behind all other ops.
#pragma once

#include <string>
#include <vector>

#include "tessera/graph/builder.h"

namespace tessera {

struct Carry {
  double keep = 0;  // share of the old value; 0: it is replaced
  // The new part is factor * value + offset.
  double factor = 1, offset = 0;
};
// Adds the op "<buffer>.carry". The value has the buffer's dims, in any floating dtype.
void carry(GraphBuilder& g, TensorId buffer, TensorId value, const Carry& how = {});

// Returns by tensor whether it is a buffer that an update op changes.
std::vector<bool> carried_buffers(const Graph& graph);

// An update op of a forward graph, by the names of the tensors that it reads.
struct CarriedUpdate {
  std::string path, kind;
  Attributes attributes;
  std::vector<std::string> inputs;
  std::vector<std::string> buffers;  // by output: the buffer whose new value it is
};
struct WithoutUpdates {
  Graph forward;  // forward ops alone
  std::vector<CarriedUpdate> updates;
};
bool has_updates(const Graph& graph);
// Takes the update ops out of the graph. Returns an error that names an update op whose output is
// not the new value of a buffer.
Result<WithoutUpdates> without_updates(const Graph& forward);
// Returns the graph with its update ops behind all others, where differentiate puts them.
Result<Graph> with_updates_last(Graph forward);
// Adds the updates behind all ops. Returns an error if the graph lacks a tensor that one reads.
Result<Graph> with_updates(Graph graph, const std::vector<CarriedUpdate>& updates);

}  // namespace tessera
