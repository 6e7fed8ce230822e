// A slow, obvious executor of what programs do to each other, for tests: it knows the order of
// instructions and who waits for whom, and nothing of data. It tries every interleaving of the
// ranks, so it decides deadlock by definition; the verifier's order rule is tested against it. For
// tiny programs: the number of states is the product of the ranks' lengths.
#pragma once

#include <vector>

#include "tessera/program/program.h"

namespace tessera {

enum class Outcome {
  kFinishes,               // every interleaving ends
  kDeadlocks,              // every interleaving gets stuck
  kDependsOnInterleaving,  // neither: impossible under these semantics, which the tests show
};

// `blocking`: an issue, send or receive goes on only when all partners have issued theirs; else
// only waits do.
Outcome try_all_interleavings(const std::vector<Program>& programs, bool blocking);

}  // namespace tessera
