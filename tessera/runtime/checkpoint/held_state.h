// The state that the ranks of a run hold, and which rank writes which part of it to checkpoints.
// State is the parameters, the optimizer's state, buffers that steps change, and the residuals of
// codecs. All ranks compute the same division. Private to tessera/runtime.
//
//   HeldState state(graph, program, world);
//   state.share(executor);                       // all ranks call it
//   state.tensors; state.parts[rank];            // what a checkpoint has, and who writes what
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/comm/communicator.h"
#include "tessera/graph/pieces.h"
#include "tessera/program/program.h"
#include "tessera/runtime/step/interpreter.h"
#include "tessera/state/checkpoint.h"
#include "tessera/state/shares.h"

namespace tessera {

// Roles of the manifest's tensors that are no roles of a graph's.
inline constexpr std::string_view kResidualRole = "residual", kLossScaleRole = "loss_scale";

// Returns, for each tensor, whether it is state: a parameter, an optimizer state, or a buffer that
// steps change.
std::vector<bool> state_of(const Graph& graph);
// Returns whether a tensor is an optimizer state that belongs to no parameter, as that of the
// loss scale.
bool is_of_the_run(const Tensor& tensor);

class HeldState {
 public:
  // Keeps references to all arguments.
  HeldState(const Graph& graph, const Program& program, comm::Communicator& world)
      : origins(graph), graph_(graph), program_(program), world_(world) {}

  // Returns this rank's homes of state.
  std::vector<const Home*> homes() const;
  // Returns the name of a residual. A residual is of use only to the same rank with the same
  // program, so the name contains the checksum of the program's text.
  std::string residual_name(const RankExecutor& executor, size_t index);
  // Tells all ranks which homes and residuals each rank has, and sets the members below.
  void share(const RankExecutor& executor);

  const Origins origins;
  std::vector<ManifestTensor> tensors;  // tensors of all ranks: states, then residuals
  size_t first_residual = 0;            // index in `tensors`; residuals are sorted by rank
  std::vector<size_t> residual_index;   // by residual: its number among the residuals of its rank
  std::vector<std::vector<HeldBox>> held;     // by rank: the boxes that it holds
  std::vector<std::vector<ShardPart>> parts;  // by rank: the parts that this rank writes

 private:
  void assign(const std::vector<std::vector<int64_t>>& all);

  const Graph& graph_;
  const Program& program_;
  comm::Communicator& world_;
  uint64_t program_text_ = 0;  // checksum of the program's text; 0: not computed yet
};

}  // namespace tessera
