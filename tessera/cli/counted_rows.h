// Counts how many rows the exchanges of named rows (NamedRows, program/program.h) move in a
// program, by the ids in given data. It is for commands that execute nothing.
#pragma once

#include <functional>
#include <string>

#include "tessera/base/result.h"
#include "tessera/graph/graph.h"
#include "tessera/program/program.h"

namespace tessera::cli {

// Returns a function that sets the counts in a program, for its first step. `data` is written as
// the key `data` of a run file, and must name the nodes of a graph (`nodes`). The function keeps
// its own copy of the data that it needs and a reference to `graph`. Errors begin with "--data: ":
// `data` is of another kind; the model has no sparse products; a file cannot be read; the size of
// an input differs from that of the data.
Result<std::function<void(Program&)>> counted_rows(const std::string& data, const Graph& graph);

}  // namespace tessera::cli
