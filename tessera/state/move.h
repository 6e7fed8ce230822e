// Live change of plan: which bytes move between ranks when a training run changes from one plan to
// another. The state of the run (parameters, optimizer states and whatever else lives across steps)
// must then go from where the old plan keeps it to where the new plan keeps it.
//
// For each tensor, the move is one redistribution (base/redistribution.h) over the ranks of both
// plans: rank j holds its region under the old plan and needs its region under the new plan.
// Elements that a rank already has do not move. Every element that it lacks is sent to it once, by
// the nearest rank that has it, so no other way of moving sends fewer bytes.
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

// A tensor that a plan keeps between steps, and which rank keeps which region of it.
struct RestingTensor {
  std::string name;
  TensorId tensor;  // in the plan's graph
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;
  bool of_a_parameter = false;  // whether it is a parameter, or a state that belongs to one
  // By rank. A rank that keeps nothing of the tensor has a box of no elements.
  std::vector<Box> regions;
};
// Returns all tensors that the plan keeps between steps (those with homes), in the order of the
// graph. `programs` are the programs of all ranks. Errors: invalid input if a rank keeps two
// different regions of one tensor.
Result<std::vector<RestingTensor>> resting_state(const Graph& graph,
                                                 const std::vector<Program>& programs);

struct MovedTensor {
  std::string name;
  TensorId from, to;    // in the graphs of the two plans
  Redistribution what;  // over max(ranks of the old plan, ranks of the new plan) members
};
struct StateMove {
  int64_t ranks = 0;  // members of the redistributions: the larger number of ranks of the two plans
  std::vector<MovedTensor> tensors;
  // The names of tensors that only the new plan keeps and that belong to no parameter, such as the
  // scale of the loss in float16. They get the value that they have at the start of a run.
  std::vector<std::string> begun_anew;
  // The bytes and messages that each rank sends.
  std::vector<Traffic> sent;
  int64_t bytes() const;  // bytes that all ranks send
};
// Makes the plan of the move. Errors: invalid input if the new plan keeps a parameter, or a state
// that belongs to one, and the old plan does not keep it, or keeps it with another shape or dtype;
// then the two plans are not of one run.
Result<StateMove> plan_move(const std::vector<RestingTensor>& from,
                            const std::vector<RestingTensor>& to);

}  // namespace tessera
