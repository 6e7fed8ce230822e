// Running state: buffers that the program itself changes once a step (running statistics of batch
// norm, a queue of soft labels). A forward graph says so by update ops among its forward ops, whose
// outputs are new values of buffers:
//
//   const TensorId mean = g.buffer("bn.running_mean", {channels}, {Init::Kind::kZeros, 0});
//   ... forward ops read `mean`, and make `now`, this step's mean over all samples ...
//   carry(g, mean, now, {.keep = 0.9});     // mean' = 0.9 mean + 0.1 now, after the step
//
// What holds:
//   - Every op of the step reads the value that the step before left; the first step reads the Init.
//   - Nothing is trained through it: buffers have no gradient.
//   - There is one change a step, however many micro-batches it has. A value that a forward op sums
//     over the batch is the sum over all of them. So a buffer cannot have the dim that micro-batches
//     cut: what it keeps of each sample needs micro_batches = 1.
//   - An update op is cut as the buffer that it changes rests, which is as its first reader reads it.
//   - The changes are no part of a loop or of the precision of a plan: transforms of the forward
//     graph and `differentiate` take them out and put them back behind all other ops.
#pragma once

#include <string>
#include <vector>

#include "tessera/graph/builder.h"

namespace tessera {

struct Carry {
  double keep = 0;  // of the old value; 0: it is replaced
  // The new part is factor * value + offset.
  double factor = 1, offset = 0;
};
// Adds the op "<buffer>.carry". The value has the buffer's dims, in any floating dtype.
void carry(GraphBuilder& g, TensorId buffer, TensorId value, const Carry& how = {});

// By tensor: the buffers that an update op changes.
std::vector<bool> carried_buffers(const Graph& graph);

// The update ops of a forward graph, by the names of what they read.
struct CarriedUpdate {
  std::string path, kind;
  Attributes attributes;
  std::vector<std::string> inputs;
  std::vector<std::string> buffers;  // by output: what it is the new value of
};
struct WithoutUpdates {
  Graph forward;  // forward ops alone
  std::vector<CarriedUpdate> updates;
};
bool has_updates(const Graph& graph);
// The graph's update ops may make new values of buffers alone; an Error names one that does not.
Result<WithoutUpdates> without_updates(const Graph& forward);
// The graph with its update ops behind all others, where differentiate puts them.
Result<Graph> with_updates_last(Graph forward);
// Adds them behind all ops. An Error if the graph lacks what one of them reads.
Result<Graph> with_updates(Graph graph, const std::vector<CarriedUpdate>& updates);

}  // namespace tessera
