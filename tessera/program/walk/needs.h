// The layouts in which ops want their operands at their places, time loops included. Private to
// tessera/program.
#pragma once

#include <optional>

#include "tessera/program/walk/facts.h"

namespace tessera {

// Returns the position of the tensor among the op's inputs; the tensor must be one of them.
size_t operand_index(const Graph& graph, const Op& reader, TensorId tensor);

// Returns the layout of what the op reads of an operand, at the op's place, without the loop.
Layout need_of(const Facts& facts, const Op& op, size_t operand);

// Returns the layout from which the steps of a loop fetch: the need, with the looped dim sharded
// further over an axis (for a nested loop: over all its axes). The axis is one over which `hold` is
// sharded, or over which its parts are to be summed, and which the reader does not use for this
// operand. Without such an axis it is the need itself.
Layout staged_layout(const Layout& need, const StepPiece& piece, const Layout& hold,
                     const Mesh& mesh, const std::vector<int64_t>& shape);

// Returns the layout that a reader at another place than the tensor's wants to hold before its own
// steps: its need, sharded further where its time loop can fetch from. `hint`: the layout on the
// other side; nullopt: this place lacks its axes.
Layout landing_layout(const Facts& facts, TensorId tensor, const Op& reader,
                      const std::optional<Layout>& hint);

// Returns the layout in which its first reader wants a tensor (time loops included as far as an
// axis can hold them). If that reader runs in the update, the last reader that updates a tensor at
// rest decides. Returns nothing if no op reads the tensor, or if `place`, where it is made in the
// layout `made`, lacks axes of the reader's mesh.
std::optional<Layout> destination(const Facts& facts, TensorId tensor, PlaceId place,
                                  const Layout& made);

}  // namespace tessera
