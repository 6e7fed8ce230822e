// Measures a network between the ranks of a communicator (probe.h says what for).
//
//   ProbeOptions options;
//   options.seconds = 20;
//   TESSERA_TRY(const Probed probed, probe_network(world, here, options));   // on every rank
//   if (world.rank() == 0) print(to_text(probed.found, probed.hosts));
//
// The first rank of each host measures for it; its other ranks wait. All ranks call the function
// with the same options. Rank 0 decides what is measured next, gathers all results, and alone gets
// the answer. Steps:
// 1. Latencies: each pair of hosts echoes 16 small messages from both ends (8 if they take longer
//    than 5 ms); half of the 10th percentile of the round trips counts.
// 2. Rounds of matchings in which all pairs send at once, both ways, for a window of time. Bytes
//    that arrive in the first quarter do not count, as buckets of shaped links are full at first. The
//    first rounds are random; when there are racks, rounds that cross them as often as possible come
//    between. It ends when the racks and the ways up are sure, or the budget is used up.
//
// A peer that does not answer within the communicator's time limit is an error that names its host.
// Only the interface of communicators is used; the caller makes one (threads, MPI).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/comm/communicator.h"
#include "tessera/network/probe.h"

namespace tessera::network {

// A rank's words about itself.
struct ProbeHost {
  std::string name;     // of the host, at most 255 bytes
  std::string address;  // SLURM_TOPOLOGY_ADDR, at most 511 bytes; empty: none
  // What hosts have in common if they run on one kernel (Linux: its boot_id), at most 63 bytes;
  // empty: not known.
  std::string kernel = {};
};

struct ProbeOptions {
  double seconds = 30;  // of measuring, at most
  double bytes = 8e9;   // that all hosts send together, at most
  uint64_t seed = 1;    // of the matchings
  // Called on rank 0 when the hosts are known, in the order of their first ranks: returns the rack of
  // each host, where that is known and need not be searched, or an empty list.
  std::function<Result<std::vector<int64_t>>(const std::vector<ProbeHost>&)> known_racks;
  // Called on rank 0: what is done, and the share of the budget that is used.
  std::function<void(const std::string&, double)> progress;
};

struct Probed {
  std::vector<std::string> hosts;  // in the order of their first ranks
  std::vector<int64_t> ranks;      // of each host
  std::vector<std::string> addresses;
  bool one_machine = false;  // whether all hosts run on one kernel: containers, namespaces
  ProbeMeasurements measured;
  Inference found;
  double seconds = 0, bytes = 0;
  // The time that the rates of `found` give for an exchange in which each host sends to all others,
  // divided by the measured time; 1 where it was not measured (no budget).
  double exchange_share = 1;
  bool sure = false;  // false: the budget ended the measurement
};

// Returns the measurement on rank 0, and an empty one on the others. Errors: fewer than two hosts; a
// host that does not answer.
Result<Probed> probe_network(comm::Communicator& world, const ProbeHost& here,
                             const ProbeOptions& options);

}  // namespace tessera::network
