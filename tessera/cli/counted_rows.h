// Counts, in given data, the rows that a program's exchanges move (NamedRows, program/program.h),
// for commands that execute nothing.
#pragma once

#include <functional>
#include <string>

#include "tessera/base/result.h"
#include "tessera/graph/graph.h"
#include "tessera/program/program.h"

namespace tessera::cli {

// Returns a function that fills in the counts of the first step in a program. `data` is written as
// the key data of a run file and names the nodes of a graph. The function keeps what it needs of
// the files, and refers to `graph`. Errors begin with "--data: ": `data` is of another kind, the
// model has no sparse products, a file cannot be read, or an input's size differs from the data's.
Result<std::function<void(Program&)>> counted_rows(const std::string& data, const Graph& graph);

}  // namespace tessera::cli
