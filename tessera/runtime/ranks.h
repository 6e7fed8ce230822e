// Internal to the runtime: helpers that sessions share for running a function on every rank and for
// agreeing on its outcome. Values outside of programs are gathered by comm/gather_bytes.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/comm/communicator.h"
#include "tessera/comm/gather_bytes.h"
#include "tessera/compile/compile.h"
#include "tessera/program/program.h"
#include "tessera/runtime/interpreter.h"
#include "tessera/runtime/kernels.h"

namespace tessera {

// Returns the cores for one kernel of one of `ranks` ranks in this process.
int threads_of_rank(int ranks);

// Shares each rank's status before the ranks run together: if any rank failed, all return the error
// of the first one that did, so that no rank waits for it.
Status agree(comm::Communicator& world, const Status& mine);
// Moves `values` from one rank to another. Both call it; it does nothing on other ranks or for from
// == to.
void transfer(comm::Communicator& world, int from, int to, std::vector<double>& values);

// Returns the bytes sent so far by kind: collectives in the order of CollectiveKind, then messages.
std::vector<int64_t> bytes_sent(const comm::Communicator& world);
std::vector<std::string> sent_kinds();

int64_t peak_rss_bytes();  // of this process
int64_t rss_bytes();       // now

}  // namespace tessera
