// Decides which of several equally fast plans is the simplest. Prices of measured kernels repeat to
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

// How much the programs of a plan do in a step, as counts added up over the places of the pipeline.
struct PlanEffort {
  int64_t transfers = 0;     // collectives, messages and copies that are begun
  int64_t instructions = 0;  // that are run
  int64_t entries = 0;       // of the plan's text
  friend auto operator<=>(const PlanEffort&, const PlanEffort&) = default;
};
PlanEffort effort_of(const Lowering& lowering);

// Returns the number of ops that were lowered, plus the instructions of one program for each role
// of ranks. Making and simulating these takes 4 to 10 microseconds each, whatever the simulated
// machine.
double work_of_programs(const Lowering& lowering);

// Returns the share by which the steps of equally fast plans may differ. On a machine with measured
// prices it is what these may err when measured again, else what rounding does.
double tie_share(const Cluster& cluster);

// Returns whether the steps of two candidates differ by at most the share. The programs of
// candidates are known and fit, here and below.
bool ties(const PlanCandidate& a, const PlanCandidate& b, double share);
// Returns whether `a` takes less effort, or the same and is faster.
bool is_simpler(const PlanCandidate& a, const PlanCandidate& b);
// Returns whether `a` is faster by more than the share, or ties with `b` and is simpler.
bool wins(const PlanCandidate& a, const PlanCandidate& b, double share);

// Returns the simplest of the candidates that fit and tie with candidate `fastest`; of equally
// simple ones the fastest, and of these the first.
size_t simplest_of_ties(const std::vector<PlanCandidate>& candidates, size_t fastest, double share);

}  // namespace tessera
