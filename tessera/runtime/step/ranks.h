// Internal to the runtime: helpers that sessions share to run a function on every rank and to agree
// on an error. comm/gather_bytes.h gathers values that are not part of programs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/comm/communicator.h"
#include "tessera/comm/gather_bytes.h"
#include "tessera/compile/compile.h"
#include "tessera/program/program.h"
#include "tessera/runtime/kernels.h"
#include "tessera/runtime/step/interpreter.h"

namespace tessera {

// Returns how many cores a kernel of one rank may use, if this process has `ranks` ranks: an equal
// share of the machine's cores, at least 1.
int threads_of_rank(int ranks);

// Tells all ranks the status of each rank, so that no rank waits for a rank that failed. If any
// rank failed, all ranks return the error of the failed rank with the lowest number. All ranks call
// this function together.
Status agree(comm::Communicator& world, const Status& mine);
// Moves `values` from rank `from` to rank `to`. Both ranks call this function. It does nothing on
// other ranks, or if from == to.
void transfer(comm::Communicator& world, int from, int to, std::vector<double>& values);

// Returns the bytes sent so far by kind: collectives in the order of CollectiveKind, then messages.
std::vector<int64_t> bytes_sent(comm::Communicator& world);
std::vector<std::string> sent_kinds();

int64_t peak_rss_bytes();  // peak of the resident set of this process
int64_t rss_bytes();       // resident set of this process now

}  // namespace tessera
