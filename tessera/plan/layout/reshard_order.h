// Chooses the order and the senders of jobs that occupy network cards
// (docs/strategies/cross-mesh.md section 3). For `seconds`, a job occupies the outgoing card of its
// sender, the incoming cards of its receiving hosts and the outgoing cards of its relays. A
// schedule is a list of jobs with their senders. Each job in it starts as soon as the earlier jobs
// in the list have left all cards that it occupies. Private to tessera/plan.
#pragma once

#include <cstdint>
#include <vector>

namespace tessera::reshard_order {

struct Job {
  std::vector<int> senders;    // hosts that may send it, sorted
  std::vector<int> receivers;  // hosts that receive it
  std::vector<int> relays;     // receiving hosts that pass the data on
  double seconds = 0;
};
struct Slot {
  int job = 0;
  int sender = 0;  // host
  friend bool operator==(const Slot&, const Slot&) = default;
};
using Schedule = std::vector<Slot>;

// Returns the seconds until the last job ends. If `starts` is given, the start time of each job is
// appended to it, in the order of the schedule.
double makespan(const std::vector<Job>& jobs, const Schedule& schedule, int hosts,
                std::vector<double>* starts = nullptr);

// first_replica takes the jobs in order and lets the first possible host send each. size_balanced
// takes them in order, longest_first by falling seconds; both let the host send that has the least
// seconds of earlier jobs to send.
Schedule first_replica(const std::vector<Job>& jobs);
Schedule size_balanced(const std::vector<Job>& jobs, int hosts);
Schedule longest_first(const std::vector<Job>& jobs, int hosts);
// Returns a schedule in waves. A wave is a set of jobs that share no card. For each wave 100 random
// sets are drawn, and the set with the most jobs is taken; among equals, the set after which the
// loads of the sending hosts have the smallest standard deviation.
Schedule waves(const std::vector<Job>& jobs, int hosts, uint64_t seed);
// Returns the schedule after local search. The search makes each swap of two jobs and each change
// of a sender that shortens the makespan. It ends at a local minimum, when the makespan is at most
// `bound`, or after a fixed amount of work.
Schedule improve(const std::vector<Job>& jobs, Schedule schedule, int hosts, double bound);
// Returns a shortest schedule, found by depth-first search over the next job and its sender.
// `incumbent` is a schedule to beat; the search ends early at a makespan of `bound`. A branch is
// cut off if one of three lower bounds is no better than the best schedule so far. The first is the
// time until which an incoming card is busy plus the remaining seconds of its jobs. The second is
// the sum for an outgoing card, with only those jobs that no other host can send. The third is the
// mean of the busy times of all possible senders plus their even share of the remaining seconds.
// The result is optimal, because some order of the jobs gives a shortest schedule.
Schedule exact(const std::vector<Job>& jobs, Schedule incumbent, int hosts, double bound);

}  // namespace tessera::reshard_order
