// The part of a step that makes what the next step finds ready (graph/ahead.h): executed alone, for
// the step that begins, it fills the buffers of a run that starts, and those of an evaluation.
#pragma once

#include <optional>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/graph/graph.h"
#include "tessera/program/program.h"

namespace tessera {

struct AheadPart {
  ByBlock<std::vector<bool>> instructions;  // by block: which belong to it
  std::vector<Home> homes;                  // of the buffers that it fills
};
// Unset: no op of the program works ahead. An Error if that part cannot be told from the rest: it
// would write what other parts of the step need.
Result<std::optional<AheadPart>> ahead_part(const Program& program, const Graph& graph);

// By tensor: of what the new values of those buffers are made, one after the other, and they
// themselves; not what rests, of which that is made.
std::vector<bool> made_ahead(const Graph& graph);

// The program with the instructions of that part alone, whose bytes a start of a run sends besides
// those of its steps.
Program program_of(const AheadPart& part, const Program& program);

}  // namespace tessera
