// The communicator for ranks that are threads of one process. Start it with run_threads
// (communicator.h).
//
// Nothing is staged: members publish views of their arrays, and each member pulls what it needs
// straight from the others' memory. In a chunked all-reduce member r reduces chunk r from all
// inputs and writes it into all outputs. A call is a meeting point with one slot a member; a member
// fills its slot when it issues and polls the others' slots while it waits. It first spins briefly
// (only if every rank can have a core), then yields, then sleeps until a peer's next step wakes it
// or the time limit passes.
//
// A fault is final: the world is aborted, and every later wait for an incomplete call throws.
// wait() and abort() throw or return only after all other ranks have stopped touching this rank's
// memory, so arrays may be freed then. A body that fails for reasons of its own with calls in
// flight must therefore let its arrays outlive itself, or call abort() before they are freed.
#pragma once

#include "tessera/comm/communicator.h"

namespace tessera::comm {

// How long a waiting rank spins and yields; run_threads chooses by the number of cores.
struct Patience {
  int spins = 0;
  int yields = 0;
};
Patience default_patience(int ranks);

}  // namespace tessera::comm
