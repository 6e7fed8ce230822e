// Compares two traces of one program: a predicted and a measured step, two machines, two runs.
// Events are aligned by (rank, instruction id), so the traces must be of the same model, plan and
// batch; events that only one trace has are listed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/simulate/simulation.h"

namespace tessera {

// Seconds are sums over the aligned events; "change" is b / a - 1.
struct ClassDifference {
  std::string what;  // "matmul", "all_reduce tp"; as the first trace names it
  int64_t events = 0;
  double a_s = 0, b_s = 0;
  double change() const { return a_s > 0 ? b_s / a_s - 1 : 0; }
  // The mean over its events of |b - a| / max(a, b), which a sum can hide.
  double spread = 0;
  double share = 0;      // of a's time in all aligned events
  double rank_step = 0;  // (b - a) of one rank, over a's step time
};
struct InstructionDifference {
  int32_t rank = 0;
  std::string id, what, label;
  double a_s = 0, b_s = 0;
};
struct Unmatched {  // of one class
  std::string what;
  int64_t events = 0;
  double seconds = 0;
  std::string example;  // "rank 0 forward:0:3"
};

struct TraceDifference {
  double a_step_s = 0, b_step_s = 0;
  int64_t events = 0;          // aligned
  std::vector<int32_t> ranks;  // that both have
  std::vector<int32_t> only_a_ranks,
      only_b_ranks;                          // not compared (of equal ranks one is simulated)
  std::vector<ClassDifference> classes;      // by |b - a|, largest first
  std::vector<InstructionDifference> worst;  // by |b - a|, largest first
  std::vector<Unmatched> only_a, only_b;     // on ranks that both have; by name
};
// Compares two traces. `worst`: how many instructions to list. Several events of one instruction
// (in several lanes) count as one of their joint length; events of the host's lane are a class
// "host".
TraceDifference diff_traces(const Simulation& a, const Simulation& b, size_t worst = 10);

}  // namespace tessera
