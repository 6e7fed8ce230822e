// Solves the integer program of one_hot.h with COIN-OR's solver CBC. Tests compare CBC with
// Tessera's own solver and with the chain program of unit_cuts.h, which share no code with it. CBC
// also answers where the own solver reaches its limit.
//
// CBC is optional. Without its header (Debian coinor-libcbc-dev, scripts/setup) the build takes the
// stub no_cbc/. With the header, the library is loaded when a problem is first solved, and may be
// missing then. It is meant for problems of up to a few thousand choices.
#pragma once

#include <optional>

#include "tessera/base/result.h"
#include "tessera/planners/published/one_hot.h"

namespace tessera::published {

// Returns whether CBC is built in and its library can be loaded.
bool cbc_available();

// Solves the problem and returns the answer as solve_one_hot() does, with `branches` 0. Returns
// nothing if no choices are allowed. Errors: CBC is missing (the message says what to install); CBC
// ended without a proof, after at most ten minutes.
Result<std::optional<OneHotAnswer>> solve_one_hot_by_cbc(const OneHotProblem& problem);

// Solves the problem by Tessera's own search. If that ends without a proof, and CBC is available
// and proves an answer, returns CBC's answer.
std::optional<OneHotAnswer> solve_one_hot_by_either(const OneHotProblem& problem);

}  // namespace tessera::published
