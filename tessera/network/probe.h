// Infers from measurements which machines share a way up (are in one rack), the rates of network
// cards and of ways up with their uncertainty, and which of them are slow. This part is
// pure: probe_measure.h measures, and the tests make measurements of networks that they invent.
//
//   ProbeMeasurements measured = ...;                     // latencies, rounds of matchings
//   const Inference found = infer(measured, {});
//   found.rack[3], found.uplinks[0].rate, found.probability
//   Network network = network_of(found, names);
//
// A single transfer at a time cannot see a shared way up: it gets the full rate of the network cards
// in a rack and across racks (docs/theory/cloud-collectives.md section 6). So the machines pair up
// at random, and all pairs send at once, in both directions; this is a round. The pairs of a rack
// then get the rate of their cards, and those that cross share what the ways up carry.
//
// Model: machine i has a card of rate h_i, rack g a way up of rate u_g, and above is a core without
// limit. In a round the rates are those of max-min fairness. A pair that is limited by its cards is
// expected to have this rate up to some percent. Pairs that share a way up get very unequal parts of
// it (TCP), but their sum is known as well as the rate of a card. Errors follow Student's t with 3
// degrees of freedom, so that single disturbed pairs change little.
//
// Search: among partitions into racks, for the highest posterior: likelihood of rates and of
// latencies, less a price for each rack and for each machine that is placed. Starts are no racks, the clusters
// that latencies and rates of pairs suggest, and random ones; moves put a machine elsewhere, swap
// two, join two racks or split one. The number of partitions that are tried is bounded, and the
// result does not depend on the clock.
//
// What cannot be seen: racks whose ways up never limit; which of two racks has the smaller way up if
// there are only two (both get the rate that was seen); and levels of switches above the racks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/network/network.h"

namespace tessera::network {

struct ProbeFlow {
  int64_t a = 0, b = 0;  // machines
  double rate = 0;       // bytes/s in each direction, the mean of both
};
using ProbeRound = std::vector<ProbeFlow>;  // flows at the same time; a machine is in at most one

struct ProbeMeasurements {
  int64_t machines = 0;
  // Seconds of a small message from i to j, the mean of both directions, row-major; 0: not measured.
  std::vector<double> latency_s;
  std::vector<ProbeRound> rounds;

  double latency(int64_t i, int64_t j) const {
    return latency_s.empty() ? 0 : latency_s[static_cast<size_t>(i * machines + j)];
  }
};

// A rate with its relative standard error.
struct Estimate {
  double rate = 0;
  double error = 0;
  bool reached = false;  // false: nothing was limited by it, the rate is only what was seen at most
};

struct Inference {
  std::vector<int64_t> rack;            // of each machine, numbered by the first machine of each
  std::vector<Estimate> cards;          // of each machine
  std::vector<Estimate> uplinks;        // of each rack; one rack: empty
  std::vector<double> rack_latency_s;   // median between machines of the rack; 0: not measured
  std::vector<double> cross_latency_s;  // median between two racks, row-major
  double probability = 0;               // of this partition, among all that were tried
  std::vector<double> sure_of;          // by machine: probability that it is in its rack
  // Median relative error of the rates that the model knows well: of pairs limited by their cards, and
  // of sums of pairs limited by a way up.
  double misfit = 0;
  std::vector<int64_t> slow_machines;  // card below 0.8 of the median card
  std::vector<int64_t> late_machines;  // latencies above twice the median of the others'
  std::vector<int64_t> slow_racks;     // way up below 0.8 of the median
};

// Finds the racks, or takes `known_rack` (of each machine) for them if it is not empty.
// `most_partitions` bounds the search.
Inference infer(const ProbeMeasurements& measured, const std::vector<int64_t>& known_rack,
                int64_t most_partitions = 20'000);

// Returns the rates of max-min fairness of a round. `racks` may be -1: on the core. A way up of
// infinite rate never limits.
std::vector<double> fair_round(const ProbeRound& round, const std::vector<int64_t>& racks,
                               const std::vector<double>& cards,
                               const std::vector<double>& uplinks);

// Returns matchings of n machines in which each pair meets once, in an order that the seed draws; for
// an odd number one machine rests in each. After n - 1 (n) rounds they start again with other pairs.
std::vector<std::pair<int64_t, int64_t>> matching(int64_t machines, uint64_t seed, int64_t round);
// Returns a matching with as many pairs as possible across racks; different ones for different rounds.
std::vector<std::pair<int64_t, int64_t>> crossing_matching(const std::vector<int64_t>& rack,
                                                           uint64_t seed, int64_t round);

// Returns the clusters that the latencies suggest, as a rack number of each machine: pairs are joined
// below the largest gap between sorted latencies, if it is a factor of at least 1.5 and the pairs
// agree. One cluster if there is no such gap.
std::vector<int64_t> latency_clusters(const ProbeMeasurements& measured);

// Returns what was found as a network. Rates of cards within a tenth of each other become equal, so
// that machines of one kind stay one kind.
Network network_of(const Inference& found, const std::vector<std::string>& names);

// Says what was found, in lines for people.
std::string to_text(const Inference& found, const std::vector<std::string>& names);
// Says it as JSON: machines, latency_us, clusters, uplink_Mbps and more (docs/reference/command-line.md).
std::string to_json(const Inference& found, const ProbeMeasurements& measured,
                    const std::vector<std::string>& names);

}  // namespace tessera::network
