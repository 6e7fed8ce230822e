// Internal to the runtime: verify_plan (session.h) with an inserted fault, to show that the
// comparison finds it.
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
