// Simulates a step: plays the programs of the ranks on a machine that a cluster text describes
// (docs/theory/cost-model.md section 9).
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
  bool fold = true;  // true: equal ranks are played as one; false: every rank is played
  // If true, all ranks of the same stages are played as one, even if they are placed differently on
  // nodes. The first of them is played, which has the largest pieces of uneven cuts. For quick
  // predictions of many ranks.
  bool fold_places = false;
  bool events = false;  // keep every instruction's times (traces, reports)
  // If true, a stretch of a block (stretch.h) that nothing from outside disturbs is played in one
  // go instead of item by item. The result is the same.
  bool compact = true;
  bool memory = true;  // if false, RankResult::memory is not computed and stays zero
  // If true, also computes MemoryUse::timeline and at_peak, and the sizes of the planned arenas.
  // The sizes are computed in any case if the style's allocator is the planned one. Only with
  // `memory`.
  bool memory_details = true;
  // If true, also computes Simulation::critical_path. If events are not kept and jitter is 0, rounds
  // of the schedule that repeat exactly are counted instead of played (round_counter.h); the
  // result then is the same except for rounding errors.
  bool critical_path = true;
  uint64_t seed = 0;  // of the random numbers for jitter
  double jitter = 0;  // relative standard deviation of each kernel's time
  // Slow devices: the device's number, and how many times longer its kernels take.
  std::vector<std::pair<int64_t, double>> stragglers;
  // The devices of the ranks if they are not those of the plan; the programs stay the same.
  std::optional<RankDevices> devices;
  // Failures of a device in a year, and the time of a restart. The expected loss that follows is
  // Simulation::failure_loss_s.
  double failures_a_device_year = 0;
  double restart_s = 0;
  // Fills in the figures of a rank's program that depend on data (NamedRows::counted). Each rank is
  // then played for itself, because ranks differ by their data. All runs of a Simulator must have
  // the same function.
  std::function<void(Program&)> counts{};

  // Decides whether a run goes on; false ends the run with an error. It is called before ranks are
  // played, with a measure of the cost of the run: the sum, over the classes of equal ranks, of the
  // number of instructions in the program of one rank of the class. It is not called if every rank
  // is played for itself.
  std::function<bool(int64_t)> may_play{};

  bool has_labels() const { return events || critical_path; }  // whether names of ops are needed
};

// Plays one step. Errors: the cluster has fewer devices than the plan has ranks (the message has
// both numbers).
Result<Simulation> simulate(const Lowering& lowering, const Cluster& cluster,
                            const SimulateOptions& options);

// Plays the same plan several times, on different machines or in different styles. The programs,
// and all else that does not depend on costs, are made only once.
class Simulator {
 public:
  explicit Simulator(const Lowering& lowering);  // `lowering` must outlive the Simulator
  ~Simulator();
  Simulator(Simulator&&) noexcept;
  Result<Simulation> run(const Cluster& cluster, const SimulateOptions& options);

  // Returns the memory of one rank; nothing if the rank is in no mesh. This and the next two
  // functions play nothing, and run() uses what they have made again. Figures that only
  // SimulateOptions::memory_details asks for are not set.
  Result<std::optional<MemoryUse>> memory_of(int rank, const Cluster& cluster,
                                             const SimulateOptions& options);
  // Returns the roles with only their ranks, devices, stages and memory.
  Result<std::vector<RankResult>> memory(const Cluster& cluster, const SimulateOptions& options);
  // Returns a time that the step takes at least: what the busiest rank computes, and the collectives
  // that it waits for at once. 0 if kernels jitter.
  Result<double> least_step_s(const Cluster& cluster, const SimulateOptions& options);

  // Returns the program of a rank that was played in the last run (a value of
  // Simulation::played_by). Valid until the next run.
  const Program& program_of(int rank) const;

 private:
  struct Impl;
  // Makes everything that is needed to play the step, with the costs of the machine.
  Status prepare(const Cluster& cluster, const SimulateOptions& options);

  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
