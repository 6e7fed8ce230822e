// The communicator for ranks that are threads of one process. Start it with run_threads
// (communicator.h).
//
// Nothing is copied through buffers in between: members publish views of their arrays, and each
// member pulls what it needs straight from the others' memory. In a chunked all-reduce, member r
// reduces chunk r from all inputs and writes the result into all outputs. A call is a meeting point
// with one slot for each member; a member fills its slot when it issues the call and polls the
// others' slots while it waits. A waiting member first spins briefly (only if every rank can have a
// core), then yields, then sleeps until a peer's next step wakes it or the time limit passes.
//
// A fault is final: the world (all ranks of the run) is aborted, and every later wait for an
// incomplete call throws. wait() returns or throws, and abort() returns, only after all other ranks
// have stopped touching this rank's memory, so the arrays may be freed then. If a body fails for
// another reason while calls are in flight, its arrays must therefore outlive it, or it must call
// abort() before they are freed.
#pragma once

#include "tessera/comm/communicator.h"

namespace tessera::comm {

// How often a waiting rank spins and then yields before it sleeps. default_patience() chooses both
// numbers by the number of cores; run_threads uses it.
struct Patience {
  int spins = 0;
  int yields = 0;
};
Patience default_patience(int ranks);

}  // namespace tessera::comm
