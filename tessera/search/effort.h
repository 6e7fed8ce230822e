// Which of several plans that are equally fast is the simplest. Prices of measured kernels repeat to
// within some tenths of a percent, so a smaller difference between two plans says nothing; then the
// plan that does less wins: fewer transfers (each one is a place where ranks wait for one another),
// then fewer instructions, then fewer entries in its text.
//
//   const size_t answer = simplest_of_ties(candidates, fastest, tie_share(cluster));
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tessera/cluster/cluster.h"
#include "tessera/program/lower.h"

namespace tessera {

struct PlanCandidate;

// How much the programs of a plan do in a step: counts, added up over the places of the pipeline.
struct PlanEffort {
  int64_t transfers = 0;     // collectives, messages and copies that are begun
  int64_t instructions = 0;  // that are run
  int64_t entries = 0;       // of the plan's text
  friend auto operator<=>(const PlanEffort&, const PlanEffort&) = default;
};
PlanEffort effort_of(const Lowering& lowering);

// The ops that were lowered, and the instructions of one program for each role of ranks. Making and
// simulating these takes 4 to 10 microseconds each, whatever the machine that is simulated.
double work_of_programs(const Lowering& lowering);

// Steps that differ by no more than this share are equally fast: on a machine with measured prices
// what these may err when they are measured again, else what rounding does.
double tie_share(const Cluster& cluster);

// Of candidates whose programs are known and fit. `a` wins if it is faster by more than the share, or
// a tie and simpler; of equally simple ones the faster one is the simpler.
bool ties(const PlanCandidate& a, const PlanCandidate& b, double share);
bool is_simpler(const PlanCandidate& a, const PlanCandidate& b);
bool wins(const PlanCandidate& a, const PlanCandidate& b, double share);

// Of the candidates that fit and are as fast as candidate `fastest` (or a tie with it): the simplest,
// and of equally simple ones the fastest, the first.
size_t simplest_of_ties(const std::vector<PlanCandidate>& candidates, size_t fastest, double share);

}  // namespace tessera
