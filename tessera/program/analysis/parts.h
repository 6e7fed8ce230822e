// The parts of the analysis (walk.h). It reads a graph and a resolved plan. It decides in this order:
// the blocks in which ops run (analyse.cc), the layouts in which tensors rest (homes.cc),
// and the splits of ops that follow a tensor at rest (follow.cc). Private to
// tessera/program.
#pragma once

#include <vector>

#include "tessera/program/walk.h"

namespace tessera {

struct Analysing {
  const Graph& graph;
  const ResolvedPlan& plan;
  const std::vector<TensorId>& updates;  // by op: the parameter that it updates
  Analysis& out;
  std::vector<TensorId>& first_state;  // by parameter: its first optimizer state

  StageId home_stage(TensorId tensor) const { return plan.tensors[tensor.index()].home; }
};

// Sets the homes of all tensors that rest.
void place_homes(const Analysing& a);

// Makes an op that no entry of the plan names follow a tensor at rest, which means that the op is
// split as the tensor is cut:
//   update ops, norms of a gradient  the first optimizer state of the parameter, else the
//                                    parameter itself; or the buffer that the op changes
//   sums and casts that make a       the gradient's home if the plan gives one; else as update
//   parameter's gradient             ops
//   ops that read only a parameter   the parameter
void follow(const Analysing& a, const Op& op);

// Cuts each dim of `target` as the dim of `source` with the same name and size is cut. An axis that
// cuts another dim of `to` already is not used.
void take_shards(const Layout& from, const Tensor& source, Layout& to, const Tensor& target);

}  // namespace tessera
