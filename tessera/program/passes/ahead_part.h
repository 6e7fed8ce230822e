// The ahead part of a step: the instructions that make values for the next step (graph/ahead.h). At
// the start of a run or of an evaluation no step came before, so the ahead part is executed alone,
// for the first step, to fill the buffers of these values.
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

// Returns by tensor whether it is made ahead. These are the new values of the buffers to be filled
// and all tensors made by ops on which the values depend. Tensors at rest are not among them.
std::vector<bool> made_ahead(const Graph& graph);

// Returns a program of only the instructions of the part. A run executes it once at its start and
// so sends the program's bytes in addition to those of its steps.
Program program_of(const AheadPart& part, const Program& program);

}  // namespace tessera
