// In which layout an op wants an operand at its place, time loops included. Private to
// tessera/program.
#pragma once

#include <optional>

#include "tessera/program/walk/facts.h"

namespace tessera {

// The tensor's position among the op's inputs, of which it is one.
size_t operand_index(const Graph& graph, const Op& reader, TensorId tensor);

// What the op reads of an operand, at the op's place; loop left out.
Layout need_of(const Facts& facts, const Op& op, size_t operand);

// From where the steps of a loop fetch: the need, with the looped dim sharded further over an axis
// (of a nested loop: over all its axes) over which it is held so (or over which parts of it are to
// be summed), if the reader does not use that axis for this operand.
Layout staged_layout(const Layout& need, const StepPiece& piece, const Layout& hold,
                     const Mesh& mesh, const std::vector<int64_t>& shape);

// What a reader at another place than the tensor's wants to hold before its own steps: its need,
// sharded further where its time loop can fetch from. `hint`: the layout on the other side; none:
// this place has no such axes.
Layout landing_layout(const Facts& facts, TensorId tensor, const Op& reader,
                      const std::optional<Layout>& hint);

// The layout in which its first reader wants a tensor (time loops included as far as an axis can
// hold them); if that runs in the update, the last reader that updates what is at rest. None:
// nobody reads it, or `place`, where it is made in the layout `made`, lacks axes of the reader's
// mesh.
std::optional<Layout> destination(const Facts& facts, TensorId tensor, PlaceId place,
                                  const Layout& made);

}  // namespace tessera
