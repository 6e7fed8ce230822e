// The layouts in which ops need their operands at their places, with and without time loops.
// Private to tessera/program.
#pragma once

#include <optional>

#include "tessera/program/walk/facts.h"

namespace tessera {

// Returns the position of the tensor among the op's inputs; the tensor must be one of them.
size_t operand_index(const Graph& graph, const Op& reader, TensorId tensor);

// Returns the layout of what the op reads of an operand in all steps of its time loop together.
Layout need_of(const Facts& facts, const Op& op, size_t operand);

// Returns the layout from which the steps of a time loop fetch their pieces. This is `need` with
// the looped dim cut further over one axis (for a nested loop: over all its axes). The axis must be
// one that the reader does not use for this operand, and over which `hold` is cut or has parts that
// are to be summed. Returns `need` itself if there is no such axis.
Layout staged_layout(const Layout& need, const StepPiece& piece, const Layout& hold,
                     const Mesh& mesh, const std::vector<int64_t>& shape);

// Returns the layout in which a tensor from another place should be held at the reader's place
// before the steps of the reader's time loop: the reader's need, cut further if the steps can fetch
// their pieces from the shards. `hint`: the layout at the sending place, with the axes of the
// reader's place; nullopt if the reader's place lacks these axes.
Layout landing_layout(const Facts& facts, TensorId tensor, const Op& reader,
                      const std::optional<Layout>& hint);

// Returns the layout in which the first reader of a tensor wants to hold the tensor, at `place`,
// where it is made in the layout `made`. If the reader runs at `place` and has a time loop, this is
// staged_layout(). If the first reader runs in the update, the last reader that updates a tensor at
// rest decides instead. Returns nothing if no op reads the tensor, or if `place` lacks axes of the
// reader's layout.
std::optional<Layout> destination(const Facts& facts, TensorId tensor, PlaceId place,
                                  const Layout& made);

}  // namespace tessera
