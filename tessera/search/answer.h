// What a planner answers, and the candidates that it has seen.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tessera/base/broken_invariant.h"
#include "tessera/search/choice.h"
#include "tessera/search/effort.h"
#include "tessera/search/estimate.h"
#include "tessera/search/question.h"
#include "tessera/simulate/simulate.h"

namespace tessera {

struct PlanCandidate {
  Choice choice;
  std::string call;  // of a recipe, if the plan is what a recipe writes; then there is no choice
  Estimate estimate;
  // Of its program: nothing if it was not lowered, or was refused.
  std::optional<double> step_s;
  double need_bytes = 0;  // upper bound of the fullest rank
  // In which some rank waits for what replicas exchange: sums of gradients, parameters in shards.
  double exposed_s = 0;
  // What it takes to simulate: instructions of the programs that are played
  // (SimulateOptions::may_play); of a recipe work_of_programs (effort.h).
  double work = 0;
  PlanEffort effort;  // which of equally fast plans is the simplest
  bool fits = false;
  std::string refused;  // why it could not be lowered
  std::string name() const { return call.empty() ? choice.str() : call; }
};

// Neighbouring units of the model that do the same (explain.h).
struct PlanBlock {
  std::string first, last;  // names of units
  int64_t units = 0;
  std::string chosen;   // "tp: heads ffn; recompute selective; sharded 1"
  double passes_s = 0;  // of one unit and micro-batch, forward and backward
  double activation_bytes = 0, resting_bytes = 0;  // of one unit
  std::string next;                                // the fastest other way; empty: none was ranked
  double next_s = 0, next_activation_bytes = 0;
};

struct PlanAnswer {
  std::vector<PlanCandidate> simulated;  // in the order in which they were tried
  std::optional<size_t> best;            // the fastest that fits
  std::string plan;                      // its text
  std::optional<Simulation> simulation;  // of the best
  // Choices by formula of which no other one is both faster and smaller; smallest memory first.
  std::vector<PlanCandidate> curve;
  std::vector<std::vector<std::string>> lists;  // of dims that the inner axis was offered
  int64_t estimated = 0;                        // choices that were ranked
  size_t programs_allowed = 0;                  // that could have been simulated
  int64_t left_out_for_part = 0;  // plans that the part rules out, or makes equal to others
  int64_t folded_programs = 0;    // programs of the folded model that were simulated for it
  double limit_bytes = 0;         // 0: none
  std::string offloaded;          // what rests on the host, a name of offload.h; empty: nothing
  // No plan can be faster (step_bound.h), and why.
  double bound_s = 0;
  std::string bound_of;
  // Plans that were left out because an invariant of ours did not hold for them.
  BrokenInvariants broken;
  std::string ended;  // why: "no other choice is expected to be faster", "stopped"
  // The best step by formula with twice the memory.
  std::optional<double> with_twice_memory_s;
  // Of a question that asks to explain: what each block does, and the answers on a machine whose
  // devices have twice the memory, and on one whose links have twice the rates.
  std::vector<PlanBlock> blocks;
  std::optional<PlanCandidate> with_twice_memory, with_twice_rates;
};

// Is `a` the better answer: one that fits, then the faster one; of two that found nothing the one that
// lacks less memory?
bool is_better(const PlanAnswer& a, const PlanAnswer& b);

struct Planner {
  std::string name, summary;
  std::function<Result<PlanAnswer>(const PlanQuestion&)> find;
  bool takes_all_keys = false;  // of fix_keys(); else not those that only some planners search
};

}  // namespace tessera
