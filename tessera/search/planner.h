// Planners: from a model, a machine and a batch to the text of a plan. A planner ranks the choices
// of its space by formula (estimate.h), then the programs of the best ones are lowered and
// simulated, and the fastest that fits is the answer.
//
//   PlanQuestion question;
//   question.model = "gpt:layers=24,hidden=1024,heads=16,seq=1024,vocab=50304";
//   question.batch = 64;
//   question.cluster = &cluster;
//   TESSERA_TRY(const PlanAnswer answer, find_plan(question, "auto"));
//   if (answer.best) fmt::print("{}", answer.plan);
//
// Equal questions have equal answers: what is counted is programs, not seconds. The guides
// docs/guides/choose-a-plan.md and add-a-planner.md tell more.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/base/broken_invariant.h"
#include "tessera/plan/part.h"
#include "tessera/search/choice.h"
#include "tessera/search/effort.h"
#include "tessera/search/estimate.h"
#include "tessera/simulate/simulate.h"

namespace tessera {

// Programs that a search may simulate: few of large models, many of small ones.
inline constexpr size_t kLeastPrograms = 12, kMostPrograms = 256;
// Of a small model on at most so many devices the space is searched without the shortcuts that rest
// on formulas, with so many programs at the most on two devices, fewer on more. Small: its ops, each counted on every device, are
// at most so many, so that a program takes milliseconds.
inline constexpr int64_t kSmallDevices = 8, kSmallOps = 160;
inline constexpr size_t kMostOfSmall = 1024;
struct PlanQuestion {
  std::string model;  // a model's text
  int64_t batch = 0;
  DType compute = DType::kFloat32;
  const Cluster* cluster = nullptr;
  SimulateOptions options;
  OptimizerSpec optimizer = {};    // what updates the parameters, and so what memory they need
  int64_t memory_limit_bytes = 0;  // of a device; 0: what the devices have
  // What is not searched: "tp" -> "8". The keys are those of fix_keys().
  std::map<std::string, std::string> fixed;
  // Keys and entries of a plan text that every plan contains (parse_part with planned_axes());
  // what it says of degrees, micro-batches and the schedule is not searched.
  std::optional<PlanPart> part;
  // Programs of the whole model that may be simulated; 0: between kLeastPrograms and kMostPrograms,
  // by the number of the model's ops. Where a small model's choices are no more than that, all of
  // them are simulated, and the answer is the best of the space.
  size_t evaluations = 0;
  // Formulas err: a choice is not simulated if it is expected to be so many times slower than the
  // best program; for a choice that differs little from a simulated one the margin is narrower.
  double margin = 1.1;
  // Also PlanAnswer::blocks, with_twice_memory and with_twice_rates, for which the search is made
  // three times.
  bool explain = false;
  std::function<void(const std::string&)> progress;  // what is being done; may be empty
  std::function<bool()> stop;                        // true: answer with the best so far
  // Candidates that break an invariant of ours are left out and counted here; the questions that are
  // made of this one count together.
  std::shared_ptr<BrokenInvariants> broken = std::make_shared<BrokenInvariants>();
};

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
const std::vector<Planner>& all_planners();
// Errors: an unknown planner, a key of `fixed` that is none, a value that is no number, a batch
// below 1, what the model's text is refused for, and a part that does not go with the model, with
// what is fixed or with any choice (with its file and line).
Result<PlanAnswer> find_plan(const PlanQuestion& question, const std::string& planner);

// What may be fixed, with its meaning.
const std::vector<std::pair<std::string, std::string>>& fix_keys();

// Several lines: what was found and why. `explain`: also the candidates beside it, what binds, and
// what more memory would bring.
std::string to_text(const PlanAnswer& answer, const PlanQuestion& question, bool explain);

}  // namespace tessera
