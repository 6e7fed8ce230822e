// Internal to the runtime: runs verify_plan (session.h) with a fault that a test inserts into the
// programs, to show that the comparison finds the fault.
#pragma once

#include <functional>
#include <vector>

#include "tessera/program/program.h"
#include "tessera/runtime/session.h"

namespace tessera {

// Changes the programs of the parallel run, after the verifier accepted them and before they run.
using Alter = std::function<void(const Graph& graph, std::vector<Program>& programs)>;
Result<VerifyReport> verify_altered(const VerifyConfig& config, const Alter& alter);

}  // namespace tessera
