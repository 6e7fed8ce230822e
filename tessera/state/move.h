// Live change of plan: what moves between ranks when the state of a training run (parameters,
// optimizer states and whatever else lives across steps) goes from its places under one plan to its
// places under another plan.
//
// Each tensor is one redistribution (base/redistribution.h) over the ranks of both plans: rank j
// holds its region under the old plan and needs its region under the new one. Elements that a rank
// already has do not move, and every element that it lacks is sent to it once, by the nearest rank
// that has it: no way of moving sends fewer bytes.
//
//   TESSERA_TRY(const auto before, resting_state(old.graph(), old_programs));
//   TESSERA_TRY(const auto after, resting_state(current.graph(), new_programs));
//   TESSERA_TRY(const StateMove move, plan_move(before, after));
//   fmt::print("{} bytes\n", move.bytes());
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/base/box.h"
#include "tessera/base/redistribution.h"
#include "tessera/base/result.h"
#include "tessera/program/program.h"

namespace tessera {

// Where a tensor rests under a plan.
struct RestingTensor {
  std::string name;
  TensorId tensor;  // in the plan's graph
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;
  bool of_a_parameter = false;  // a parameter, or a state that belongs to one
  std::vector<Box> regions;     // by rank; a rank without one has a box of no elements
};
// Returns all tensors with homes, in the order of the graph. `programs` are those of all ranks.
// Errors: invalid input if a rank keeps two different regions of one tensor.
Result<std::vector<RestingTensor>> resting_state(const Graph& graph,
                                                 const std::vector<Program>& programs);

struct MovedTensor {
  std::string name;
  TensorId from, to;    // in the graphs of the two plans
  Redistribution what;  // over max(ranks of the old plan, ranks of the new plan) members
};
struct StateMove {
  int64_t ranks = 0;  // members
  std::vector<MovedTensor> tensors;
  // Names of tensors that only the new plan keeps and no parameter needs, such as the scale of the
  // loss in float16: they start as at the start of a run.
  std::vector<std::string> begun_anew;
  std::vector<Traffic> sent;  // by rank
  int64_t bytes() const;      // bytes that all ranks send
};
// Makes the plan of the move. Errors: invalid input if the new plan keeps a parameter, or a state
// of one, that the old plan does not keep, or keeps with another shape or dtype: the plans are not
// of one run.
Result<StateMove> plan_move(const std::vector<RestingTensor>& from,
                            const std::vector<RestingTensor>& to);

}  // namespace tessera
