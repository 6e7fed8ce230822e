// Finds the slow rank of a run whose ranks were watched (simulate/rank_times.h), and says what the
// other ranks wait for. docs/reference/report.md describes the answer.
//
// A rank is slow if it takes longer than its peers for the same work. Two kernels are the same work
// if they are of the same family and have the same sizes. Peers are the ranks that have the same to
// do in the whole step (replicas, mostly); a rank without such peers is compared kernel by kernel
// with all ranks. So a rank with more to do is not slow, and neither is one that waits for a slow
// one. Links are compared in the same way: groups of ranks with groups of their peers, by their equal
// transfers.
//
//   expected time of a rank in a step = sum over its work of count x median time of its peers
//
// Figures are medians over the steps. The first step that was watched is left out. A rank is named
// if it loses kLeastLoss of the step and if it is slower than its peers in so many of the steps that
// chance is ruled out with kLeastCertainty: without a difference, each step would be a toss of a
// coin.
//
//   TESSERA_TRY(const std::optional<WatchStart> start, watched_of(path));
//   TESSERA_TRY(const WatchReport found, watch_report(path, predictions));
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/simulate/rank_times.h"
#include "tessera/simulate/simulation.h"

namespace tessera {

// A rank or a link that loses less than this share of the step is not named.
inline constexpr double kLeastLoss = 0.05;
inline constexpr double kLeastCertainty = 0.95;

// The prediction of a rank's step.
struct RankPrediction {
  double work_s = 0, transfer_s = 0, wait_s = 0;
  std::map<std::string, double> work;       // by kind of op: seconds
  std::map<std::string, double> transfers;  // by kind: seconds of the stream
};
// Returns the prediction of each rank. `simulation` has events, and is that of one of `islands`
// equal islands.
std::vector<RankPrediction> rank_predictions(const Simulation& simulation, int64_t islands);

// How long something takes, compared with what the others take for the same. `ratio` is the median
// over the steps, `low` and `high` are the quartiles.
struct Pace {
  double ratio = 1, low = 1, high = 1;
  double lost_s = 0;  // of a step
  int64_t slower_steps = 0;
  double certainty = 0;  // that it is no chance that so many steps are slower
  bool is_slow = false;
};

struct RankReport {
  int32_t rank = 0;
  double step_s = 0, work_s = 0, transfer_s = 0, wait_s = 0;  // of a step
  Pace work;
  struct Op {
    std::string what;
    double seconds = 0;     // of a step
    double peers_s = 0;     // what its peers take for the same; work without peers is left out
    double compared_s = 0;  // its own time for the work that has peers
  };
  std::vector<Op> ops;          // the longest first
  std::vector<RankWait> waits;  // the longest first; seconds of a step
  std::optional<RankPrediction> predicted;
};
struct LinkReport {  // transfers within a group of ranks
  std::vector<int32_t> ranks;
  std::string what;    // the kind that takes the longest
  double seconds = 0;  // of a step
  Pace time;
};
struct WatchReport {
  WatchStart start;
  int64_t steps = 0;  // that count; 0: the file has at most the one that is left out
  int64_t first_step = 0, last_step = 0;
  double step_s = 0;              // of the rank that takes the longest
  std::vector<RankReport> ranks;  // by rank
  std::vector<LinkReport> links;  // that are slow, the one that loses the most first
  std::vector<int32_t> slow;      // ranks, the one that loses the most first
};

// Returns what the last steps of the file belong to; none if the file has no `watch` line. Reads line
// by line. Errors: the file cannot be read; those of parse_rank_times.
Result<std::optional<WatchStart>> watched_of(const std::string& path);
// Reads the steps after the last `watch` line, one by one. `predictions` is by rank; empty: none.
// Errors as above.
Result<WatchReport> watch_report(const std::string& path,
                                 const std::vector<RankPrediction>& predictions);

// Returns the answer in sentences: which rank is slow, which link, and what each rank that waits
// waits for. One sentence each, without an end of line.
std::vector<std::string> watch_sentences(const WatchReport& report);
// Returns the report as text. `predicted_for` names the machine of the predictions.
std::string draw(const WatchReport& report, const std::string& predicted_for);

}  // namespace tessera
