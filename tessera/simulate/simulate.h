// Plays the program that would run on a described machine (docs/theory/cost-model.md section 9).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/cluster/cluster.h"
#include "tessera/cost/style.h"
#include "tessera/program/lower.h"
#include "tessera/simulate/simulation.h"

namespace tessera {

struct SimulateOptions {
  Style style;
  bool fold = true;  // equal ranks run as one; false: every rank
  // If true, all ranks of the same stages run as the first of them, which has the largest pieces of
  // uneven cuts, also where the ranks lie differently on nodes: for quick predictions of many
  // ranks.
  bool fold_places = false;
  bool events = false;  // keep every instruction's times (traces, reports)
  // If true, stretches of a block that nothing from outside disturbs are played at once; the result
  // is the same.
  bool compact = true;
  bool memory = true;  // RankResult::memory; false: it is all zero, where only times are asked
  // If true, also MemoryUse::timeline and at_peak, and the sizes of the planned arenas; the latter
  // are there in any case if the style's allocator is the planned one. Only with `memory`.
  bool memory_details = true;
  // If true, also Simulation::critical_path. Without it, events and jitter, rounds that repeat
  // exactly are counted (engine_rounds.cc); the result is the same to rounding.
  bool critical_path = true;
  uint64_t seed = 0;  // of jitter, stragglers and failures
  double jitter = 0;  // relative standard deviation of each kernel's time
  std::vector<std::pair<int64_t, double>> stragglers;  // device, times slower
  std::optional<RankDevices> devices;  // another order than the plan's: the programs are the same
  double failures_a_device_year = 0;   // with restart_s: expected time lost is added, stated apart
  double restart_s = 0;
  // Fills in the figures of a rank's program that depend on data (NamedRows::counted). Ranks then
  // differ by their data, so each rank is played. All runs of a Simulator must have the same
  // function.
  std::function<void(Program&)> counts{};

  // Decides whether a run goes on. Before ranks are played it gets the number of instructions of
  // one program of each class of equal ranks, in all: the cost of the run. False ends the run with
  // an error. Not asked where every rank is played for itself.
  std::function<bool(int64_t)> may_play{};

  bool has_labels() const { return events || critical_path; }  // whether names of ops are needed
};

// Plays one step. Errors: a cluster with fewer devices than the plan's ranks (expected, found).
Result<Simulation> simulate(const Lowering& lowering, const Cluster& cluster,
                            const SimulateOptions& options);

// Plays the same plan again and again, on other machines or in other styles: programs, and what
// else does not depend on costs, are made once.
class Simulator {
 public:
  explicit Simulator(const Lowering& lowering);  // outlives it
  ~Simulator();
  Simulator(Simulator&&) noexcept;
  Result<Simulation> run(const Cluster& cluster, const SimulateOptions& options);
  // Returns the program of a rank that the last run played for itself (Simulation::played_by).
  // Valid until the next run.
  const Program& program_of(int rank) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
