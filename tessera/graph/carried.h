// Running state: buffers that the program itself changes once a step (running statistics of batch
// norm, a queue of soft labels). In a forward graph each change is an update op among the forward
// ops. Its outputs are the new values of buffers:
//
//   const TensorId mean = g.buffer("bn.running_mean", {channels}, {Init::Kind::kZeros, 0});
//   ... forward ops read `mean`, and make `now`, this step's mean over all samples ...
//   carry(g, mean, now, {.keep = 0.9});     // mean' = 0.9 mean + 0.1 now, after the step
//
// Rules:
//   - Every op of a step reads the value that the previous step left. In the first step it reads
//     the value that Init gives.
//   - Nothing is trained through a buffer: buffers have no gradient.
//   - A buffer changes once per step, however many micro-batches the step has. If a forward op sums
//     over the batch, the update op receives the sum over all micro-batches. A buffer therefore
//     cannot have the dim that micro-batches cut: a buffer with a value for each sample needs
//     micro_batches = 1.
//   - An update op is cut as its buffer is cut at rest, which is as the buffer's first reader reads
//     it.
//   - A plan's loops and its precision do not apply to update ops: transforms of the forward graph
//     and `differentiate` remove the update ops first and add them after all other ops at the end.
#pragma once

#include <string>
#include <vector>

#include "tessera/graph/builder.h"

namespace tessera {

struct Carry {
  double keep = 0;  // share of the old value that is kept; 0: the old value is replaced
  // The old value is mixed with factor * value + offset, whose share is 1 - keep.
  double factor = 1, offset = 0;
};
// Adds the op "<buffer>.carry". `value` has the buffer's dims and any floating dtype.
void carry(GraphBuilder& g, TensorId buffer, TensorId value, const Carry& how = {});

// Returns for each tensor whether it is a buffer that an update op changes.
std::vector<bool> carried_buffers(const Graph& graph);

// An update op of a forward graph. It names the tensors that the op reads, so that it is valid
// without the graph.
struct CarriedUpdate {
  std::string path, kind;
  Attributes attributes;
  std::vector<std::string> inputs;
  std::vector<std::string> buffers;  // for each output: the buffer whose new value the output is
};
struct WithoutUpdates {
  Graph forward;  // forward ops alone
  std::vector<CarriedUpdate> updates;
};
bool has_updates(const Graph& graph);
// Takes the update ops out of the graph. Returns an error that names the update op if an output of
// it is not the new value of a buffer.
Result<WithoutUpdates> without_updates(const Graph& forward);
// Returns the graph with its update ops moved to the end, where differentiate puts them.
Result<Graph> with_updates_last(Graph forward);
// Adds the updates after all ops. Returns an error if the graph lacks a tensor that an
// update reads.
Result<Graph> with_updates(Graph graph, const std::vector<CarriedUpdate>& updates);

}  // namespace tessera
