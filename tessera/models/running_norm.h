// Adds batch norm whose statistics are carried from step to step (graph/carried.h). A step
// normalises by the statistics of its own samples, and an evaluation by the running statistics.
//
//   RunningNorm norm{.keep = 0.9};
//   x = running_batch_norm(g, "bn_1", x, channels, "sample height width", norm);
//
// Let m and v be the mean and the unbiased variance of the n elements that share statistics. If the
// step has several groups of such elements (x has dims that are neither named nor channels), m and
// v are averaged over the groups. Then
//   running_mean'     = keep running_mean     + (1 - keep) m
//   running_variance' = keep running_variance + (1 - keep) v
// once per step, with any number of micro-batches. PyTorch calls the share of the new value, 1 -
// keep, momentum.
//
// The dims of x say which samples share statistics. Let x have dims (batch, sample), where batch
// counts groups, and let the statistics be taken over `sample`, that is within each group. If ranks
// split batch, each rank has statistics of its own (local). If they split `sample`, they share
// statistics (group). If there is one group of all samples, the statistics are those of the whole
// batch (all).
#pragma once

#include <string>
#include <string_view>

#include "tessera/base/result.h"
#include "tessera/graph/builder.h"

namespace tessera {

struct RunningNorm {
  double keep = 0.9;  // share of the old running statistics that a step keeps; in [0, 1)
  double eps = 1e-5;
  bool moves = true;  // false: this pass leaves the running statistics as they are
};
// Checks the key `running` of a family. It must be at least 0 and below 1.
Status check_running(std::string_view family, double keep);

// Adds a norm as batch_norm of nn.h does. The buffers `<name>.running_mean` (zeros at first) and
// `<name>.running_variance` (ones at first), each [channels], are updated by ops `<buffer>.carry`.
// If several passes share parameters (GraphBuilder::push_shared), all use the buffers of the first
// pass, which has no prefix.
TensorId running_batch_norm(GraphBuilder& g, const std::string& name, TensorId x,
                            const Dim& channels, std::string_view over, const RunningNorm& how);

}  // namespace tessera
