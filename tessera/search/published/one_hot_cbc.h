// Solves the integer program of one_hot.h with a program of another origin: COIN-OR's CBC. It
// checks Tessera's own solver and the chain program of unit_cuts.h, which share no code with it,
// and answers where the own solver gives up.
//
// CBC is optional twice: without its header (Debian coinor-libcbc-dev, scripts/setup) the build
// takes the stub no_cbc/, and the library itself is loaded when a problem is solved. Problems of a
// few thousand choices are meant.
#pragma once

#include <optional>

#include "tessera/base/result.h"
#include "tessera/search/published/one_hot.h"

namespace tessera::published {

// Returns whether CBC is built in and its library can be loaded.
bool cbc_available();

// Solves as solve_one_hot: none if nothing is allowed. `branches` stays 0. Errors: CBC is not there
// (the line says what to install); it ended without a proof, after ten minutes at the latest.
Result<std::optional<OneHotAnswer>> solve_one_hot_by_cbc(const OneHotProblem& problem);

// Solves by the own search; where it ends without a proof, and CBC is there and proves an answer,
// returns CBC's.
std::optional<OneHotAnswer> solve_one_hot_by_either(const OneHotProblem& problem);

}  // namespace tessera::published
