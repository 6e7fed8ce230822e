// The part of a step that makes values which the next step finds ready (graph/ahead.h). It is
// executed alone, for the step that begins, to fill the buffers of a run that starts or of an
// evaluation.
#pragma once

#include <optional>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/graph/graph.h"
#include "tessera/program/program.h"

namespace tessera {

struct AheadPart {
  ByBlock<std::vector<bool>> instructions;  // by block: whether each is in the part
  std::vector<Home> homes;                  // the buffers that the part fills
};
// Returns the part; unset if no op of the program works ahead. Returns an error if the part cannot
// be told from the rest of the step, because it would write buffers that other parts need.
Result<std::optional<AheadPart>> ahead_part(const Program& program, const Graph& graph);

// Returns by tensor whether it is made ahead: the new values of the buffers to be filled, and the
// made tensors that these depend on; not the tensors at rest from which the first ones are made.
std::vector<bool> made_ahead(const Graph& graph);

// Returns the program with the instructions of the part alone. A run sends its bytes once at its
// start, besides those of its steps.
Program program_of(const AheadPart& part, const Program& program);

}  // namespace tessera
