// Orders and senders for jobs that occupy network cards (docs/strategies/cross-mesh.md section 3).
// A job occupies for `seconds` the outgoing card of its sender, the incoming cards of its receiving
// hosts and the outgoing cards of its relays. Scheduling is in-order list scheduling: a job starts
// when all these cards are free, and not before the cards' earlier jobs. Private to tessera/plan.
#pragma once

#include <cstdint>
#include <vector>

namespace tessera::reshard_order {

struct Job {
  std::vector<int> senders;    // hosts, sorted
  std::vector<int> receivers;  // hosts
  std::vector<int> relays;     // hosts that pass it on
  double seconds = 0;
};
struct Slot {
  int job = 0;
  int sender = 0;  // host
  friend bool operator==(const Slot&, const Slot&) = default;
};
using Schedule = std::vector<Slot>;

// Returns the makespan. `starts`: the start times by position in the schedule, if wanted.
double makespan(const std::vector<Job>& jobs, const Schedule& schedule, int hosts,
                std::vector<double>* starts = nullptr);

Schedule first_replica(const std::vector<Job>& jobs);
Schedule size_balanced(const std::vector<Job>& jobs, int hosts);
Schedule longest_first(const std::vector<Job>& jobs, int hosts);
// Returns a schedule in waves of jobs that share no card: of 100 seeded random waves the one with
// the most jobs; ties go to the smallest standard deviation of the senders' loads after the wave.
Schedule waves(const std::vector<Job>& jobs, int hosts, uint64_t seed);
// Improves the schedule by the first improving swap of two positions or change of a sender; ends at
// a local minimum, at `bound`, or after a fixed amount of work.
Schedule improve(const std::vector<Job>& jobs, Schedule schedule, int hosts, double bound);
// Searches depth first over (next job, sender), starting from the incumbent. Bounds, all
// admissible: clock + remaining load of an incoming card; the same of an outgoing card, counting
// the jobs that no other host can send; mean over the possible senders of clock + remaining load.
// Some optimal schedule is a list schedule of some permutation, so this is exact.
Schedule exact(const std::vector<Job>& jobs, Schedule incumbent, int hosts, double bound);

}  // namespace tessera::reshard_order
