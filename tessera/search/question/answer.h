// The answer of a planner, and the candidates among which the planner chose it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tessera/base/broken_invariant.h"
#include "tessera/search/choices/choice.h"
#include "tessera/search/question/effort.h"
#include "tessera/search/question/question.h"
#include "tessera/search/rank/estimate.h"
#include "tessera/simulate/simulate.h"

namespace tessera {

struct PlanCandidate {
  Choice choice;
  std::string call;  // the recipe call, if a recipe writes the plan; `choice` is then unused
  Estimate estimate;
  // Step time of the candidate's program. Unset if the program was not lowered, or was refused.
  std::optional<double> step_s;
  double need_bytes = 0;  // upper bound of the memory of the rank that needs the most
  UsedDevices used;       // of the simulated program
  // Seconds for which a rank waits for exchanges between replicas (sums of gradients, gathers of
  // parameters in shards), of the rank that waits longest.
  double exposed_s = 0;
  // The cost of simulating the candidate: the number of instructions of the programs that are
  // played (SimulateOptions::may_play), or for a recipe work_of_programs (effort.h).
  double work = 0;
  PlanEffort effort;  // of equally fast candidates the one with the least effort is the answer
  bool fits = false;
  std::string refused;  // why the plan could not be lowered; empty: it was lowered
  std::string name() const { return call.empty() ? choice.str() : call; }
};

// Returns the facts of a choice as a formula expects them, as if the plan fitted. facts_of() returns
// those of a simulated candidate.
PlanFacts expected(const PlanQuestion& question, const Choice& choice, const Estimate& estimate);
PlanFacts facts_of(const PlanCandidate& simulated);
// Returns the merit by formula, which says whether the plan fits. merit_of() returns that of a
// simulated candidate.
Merit expected_merit(const PlanQuestion& question, const PlanCandidate& candidate);
Merit merit_of(const PlanQuestion& question, const PlanCandidate& simulated);

// A row of neighbouring units of the model that are all cut, stored and recomputed in one
// way (explain.h).
struct PlanBlock {
  std::string first, last;  // names of units
  int64_t units = 0;
  std::string chosen;   // "tp: heads ffn; recompute selective; sharded 1"
  double passes_s = 0;  // seconds of one unit for a micro-batch, forward and backward
  double activation_bytes = 0, resting_bytes = 0;  // of one unit
  std::string next;  // the fastest other way to compute these units; empty: no other way was ranked
  double next_s = 0, next_activation_bytes = 0;
};

struct PlanAnswer {
  std::vector<PlanCandidate> simulated;  // in the order in which they were tried
  std::optional<size_t> best;            // index of the best candidate, if one fits
  std::string plan;                      // text of the best plan
  std::optional<Simulation> simulation;  // the simulation of the best plan
  // The candidates by formula that no other one beats in both time and memory, sorted by memory
  // from the smallest.
  std::vector<PlanCandidate> curve;
  std::vector<std::vector<std::string>> lists;  // lists of dims that the inner axis was offered
  int64_t estimated = 0;                        // number of choices that were ranked by formula
  size_t programs_allowed = 0;  // the most programs that the search was allowed to simulate
  // Number of plans that the question's part rules out or makes equal to others.
  int64_t left_out_for_part = 0;
  // Number of programs of the folded model that were simulated for prices.
  int64_t folded_programs = 0;
  double limit_bytes = 0;  // memory that a device may use; 0: no limit
  std::string offloaded;   // name (offload.h) of the tensors that rest on the host; empty: none
  // Set if the objective has a limit of time: the deadline, and the least step time of all plans.
  double deadline_s = 0, fastest_s = 0;
  // The step time that no plan can beat (step_bound.h), and a text that says from which assumption
  // it follows.
  double bound_s = 0;
  std::string bound_of;
  // The plans that were left out because an internal invariant did not hold for them.
  BrokenInvariants broken;
  std::string ended;  // why the search ended: "no other choice is expected to be better", "stopped"
  // The best step time by formula if the devices had twice the memory.
  std::optional<double> with_twice_memory_s;
  // Set if PlanQuestion::explain is: the blocks of the best plan, the best candidate on a machine
  // whose devices have twice the memory, and the best candidate on a machine whose links have twice
  // the rates.
  std::vector<PlanBlock> blocks;
  std::optional<PlanCandidate> with_twice_memory, with_twice_rates;
};

// Sorts the candidates by their expected merit: first those that fit, the best first, then the
// others, the one with the least memory first.
std::vector<const PlanCandidate*> in_order(const PlanQuestion& question,
                                           const std::vector<PlanCandidate>& ranked);

// Returns the candidates that no other one beats in both time and memory by formula, in the order
// of rising memory.
std::vector<PlanCandidate> pareto_curve(const std::vector<PlanCandidate>& ranked);

// Returns whether `a` is the better answer to the question. An answer without a plan has the merit
// of its smallest candidate.
bool is_better(const PlanQuestion& question, const PlanAnswer& a, const PlanAnswer& b);
// Returns the better answer. Appends the candidates of the other one to its own.
PlanAnswer better_of(const PlanQuestion& question, PlanAnswer a, PlanAnswer b);

struct Planner {
  std::string name, summary;
  std::function<Result<PlanAnswer>(const PlanQuestion&)> find;
  // The keys of PlanQuestion::fixed that this planner chooses although most planners leave them as
  // they are (check_own_keys() in planner.h).
  std::vector<std::string> chooses = {};
  // Whether it answers questions with any objective, and not only for the least time.
  bool has_objectives = false;
};

}  // namespace tessera
