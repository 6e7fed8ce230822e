// A slow, obvious executor of programs for tests: it knows the order of instructions and which rank
// waits for which, but no data. It tries every interleaving of the ranks, so it decides deadlock by
// definition; the verifier's order rule is tested against it. Only for tiny programs: the number of
// states is the product of the ranks' lengths.
#pragma once

#include <vector>

#include "tessera/program/program.h"

namespace tessera {

enum class Outcome {
  kFinishes,               // every interleaving ends
  kDeadlocks,              // every interleaving gets stuck
  kDependsOnInterleaving,  // neither: impossible here, as the tests show
};

// `blocking`: an issue, send or receive goes on only when all partners have issued theirs;
// otherwise only waits wait.
Outcome try_all_interleavings(const std::vector<Program>& programs, bool blocking);

}  // namespace tessera
