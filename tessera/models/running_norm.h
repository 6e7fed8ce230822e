// Adds batch norm whose statistics are carried from step to step (graph/carried.h): a step
// normalises by the statistics of its own samples, and an evaluation by the running ones.
//
//   RunningNorm norm{.keep = 0.9};
//   x = running_batch_norm(g, "bn_1", x, channels, "sample height width", norm);
//
// Let m and v be the mean and the unbiased variance of the n elements that share statistics, each
// averaged over the groups of the step (dims beside the channels that are not named). Then
//   running_mean' = keep running_mean + (1 - keep) m, running_variance' likewise with v,
// once a step, with any number of micro-batches. PyTorch calls the new share, 1 - keep, momentum.
//
// The dims of x say which samples share statistics. With dims (batch, sample), where batch counts
// groups, statistics over `sample` are those of a group; ranks that split batch by whole groups
// have their own (local); a split of `sample` shares statistics between ranks (group); one group of
// all samples has the statistics of the whole batch (all).
#pragma once

#include <string>
#include <string_view>

#include "tessera/base/result.h"
#include "tessera/graph/builder.h"

namespace tessera {

struct RunningNorm {
  double keep = 0.9;  // in [0, 1)
  double eps = 1e-5;
  bool moves = true;  // false: this pass leaves the running statistics as they are
};
// Checks the key `running` of a family: at least 0 and below 1.
Status check_running(std::string_view family, double keep);

// Adds a norm as batch_norm of nn.h does; buffers `<name>.running_mean` (zeros) and
// `<name>.running_variance` (ones), each [channels], are updated by ops `<buffer>.carry`. If
// several passes share parameters (GraphBuilder::push_shared), they share the buffers of the pass
// without a prefix, which comes first.
TensorId running_batch_norm(GraphBuilder& g, const std::string& name, TensorId x,
                            const Dim& channels, std::string_view over, const RunningNorm& how);

}  // namespace tessera
