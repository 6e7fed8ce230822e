// Compares two traces of one program, for example a predicted and a measured step, or steps on two
// machines. Events of the two traces are aligned if they have the same rank and instruction id, so
// the traces must be of the same model, plan and batch. Events that only one trace has are listed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/simulate/simulation.h"

namespace tessera {

// The difference of all events of one class. `a_s` and `b_s` are the sums of the times of its
// aligned events in trace a and trace b.
struct ClassDifference {
  std::string what;  // the class, as trace a names it: "matmul", "all_reduce tp"
  int64_t events = 0;
  double a_s = 0, b_s = 0;
  double change() const { return a_s > 0 ? b_s / a_s - 1 : 0; }
  // The mean over the events of |b - a| / max(a, b). It shows differences that cancel in a sum.
  double spread = 0;
  double share = 0;      // a_s divided by trace a's time in all aligned events
  double rank_step = 0;  // (b - a) of one rank, divided by the step time of trace a
};
struct InstructionDifference {
  int32_t rank = 0;
  std::string id, what, label;
  double a_s = 0, b_s = 0;
};
struct Unmatched {  // the events of one class that only one trace has
  std::string what;
  int64_t events = 0;
  double seconds = 0;
  std::string example;  // "rank 0 forward:0:3"
};

struct TraceDifference {
  double a_step_s = 0, b_step_s = 0;
  int64_t events = 0;          // number of aligned events
  std::vector<int32_t> ranks;  // ranks that both traces have
  // Ranks that only one trace has; they are not compared. A simulated trace may lack ranks because
  // only one of several equal ranks is simulated.
  std::vector<int32_t> only_a_ranks, only_b_ranks;
  std::vector<ClassDifference> classes;      // by |b - a|, largest first
  std::vector<InstructionDifference> worst;  // by |b - a|, largest first
  // Events that only one trace has on ranks that both have, by class, in the order of names.
  std::vector<Unmatched> only_a, only_b;
};
// Compares two traces. `worst`: how many instructions to list. If one run of an instruction has
// events in several lanes, they count as one event with the sum of their lengths. Events of the
// host's lane are a class of their own, "host".
TraceDifference diff_traces(const Simulation& a, const Simulation& b, size_t worst = 10);

}  // namespace tessera
