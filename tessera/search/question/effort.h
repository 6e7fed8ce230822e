// Decides which of several equally good plans is the simplest. Measurements of a kernel differ by
// some tenths of a percent, so a smaller difference between two plans says nothing. Between two
// such plans the one that does less wins. The plan with fewer transfers does less (in each transfer
// ranks wait for one another), then the one with fewer instructions, then the one with fewer
// entries in its text.
//
//   const size_t answer = simplest_of_ties(objective, candidates, best, tie_share(cluster));
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tessera/cluster/cluster.h"
#include "tessera/program/lower.h"
#include "tessera/search/question/objective.h"

namespace tessera {

struct PlanCandidate;

// Counts of what the programs of a plan do in a step, added up over the places of the pipeline.
struct PlanEffort {
  int64_t transfers = 0;     // number of collectives, messages and copies
  int64_t instructions = 0;  // number of instructions that are run
  int64_t entries = 0;       // number of entries of the plan's text
  friend auto operator<=>(const PlanEffort&, const PlanEffort&) = default;
};
PlanEffort effort_of(const Lowering& lowering);

// Returns the number of ops that were lowered, plus the number of instructions in one program of
// each rank class (RankClass). Lowering and simulating take 4 to 10 microseconds for each of these,
// on whatever simulated machine.
double work_of_programs(const Lowering& lowering);

// Returns the share by which the steps of two equally fast plans may differ. On a machine with
// measured prices this is the error of a repeated measurement, else the error of rounding.
double tie_share(const Cluster& cluster);

// Returns whether `a` takes less effort than `b`, or takes the same effort and is faster. This
// function and the next ones take candidates whose programs were simulated and fit.
bool is_simpler(const PlanCandidate& a, const PlanCandidate& b);
// Returns whether `a` is better by more than the share, or ties with `b` and is simpler.
bool wins(const Objective& objective, const PlanCandidate& a, const PlanCandidate& b, double share);

// Returns the index of the simplest of the candidates that fit and tie with candidate `best`. Among
// equally simple candidates the fastest wins, and among equally fast ones the first.
size_t simplest_of_ties(const Objective& objective, const std::vector<PlanCandidate>& candidates,
                        size_t best, double share);

}  // namespace tessera
