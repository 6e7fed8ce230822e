// Counts, in given data, the rows that the exchanges of a program move (NamedRows, program/program.h),
// for commands that execute nothing.
#pragma once

#include <functional>
#include <string>

#include "tessera/base/result.h"
#include "tessera/graph/graph.h"
#include "tessera/program/program.h"

namespace tessera::cli {

// `data`: as the key data of a run file, of nodes of a graph. The function fills in the counts of the
// first step; it keeps what it needs of the files, and refers to the graph. Errors begin with
// "--data: ": other data, a model without sparse products, files that cannot be read, inputs of other
// sizes than the data have.
Result<std::function<void(Program&)>> counted_rows(const std::string& data, const Graph& graph);

}  // namespace tessera::cli
