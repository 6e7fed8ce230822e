// A `Scratch` says which memory the kernels and buffers of a framework (Style) hold in addition to the
// buffers of a program: scores of attention, float32 logits, buffers and placeholders of gradients.
//
//   const Scratch scratch = scratch_of(program, graph, style);
//   scratch.bytes[buffer.id.index()]   // what the framework keeps for the buffer
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tessera/cost/style.h"
#include "tessera/graph/graph.h"
#include "tessera/program/program.h"

namespace tessera {

// By buffer of a program: the bytes that the framework of a style holds for it.
struct HeldBuffers {
  // Bytes of one copy, with the additional values that kernels keep for their gradients.
  std::vector<int64_t> bytes;
  std::vector<bool> resident;  // whether it is held all the time, whatever its lifetime
};

// The bytes that a framework keeps for the program's buffers, and the workspaces that it takes in
// addition.
struct Scratch : HeldBuffers {
  // By compute instruction: the index of its workspace, which lives while the instruction runs. A
  // workspace counts as one more buffer, with a number after those of the program's buffers.
  std::map<const Instruction*, size_t> workspaces;
  std::vector<int64_t> workspace_bytes;
  std::vector<std::string> names;
  std::vector<size_t> kept;  // workspaces that live all the time
};

Scratch scratch_of(const Program& program, const Graph& graph, const Style& style);

// Returns the parameter of which the tensor is a gradient, perhaps in another form; invalid if the
// tensor is no gradient of a parameter.
TensorId parameter_of(const Graph& graph, const Tensor& gradient);

}  // namespace tessera
