// Futures: how long jobs take to their ends if GPUs are shared by a rule, as a fluid. A job is a list
// of times, one for each option (a type and a number of GPUs), and the share of its work that is left.
// At each start and end the GPUs are shared anew; a job whose option changes pauses.
//
// Policies compare rules by it: for each rule the jobs are played to their ends, with sampled jobs that
// are still to come, and the first step of the best rule is taken.
//
// share() gives GPUs greedily: of all jobs and larger options the one with the greatest gain per GPU,
//   value = (left * u)^(1 - exponent) / (left * seconds(option) + pause if it changes),
// where u is the least GPU time of the job. Exponent 1 prefers what ends soon; below 1, what is large
// counts more; above 1, less. Takes time GPUs * log(jobs) + jobs * options.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tessera::share {

struct GpuOption {
  int type = 0, gpus = 0;
};

struct FluidJob {
  std::vector<double> seconds;  // of the whole of what is left now, by option; kNever: cannot run
  double least_gpu_s = 0;       // the least of seconds * GPUs
  double left = 1;              // share of the work
  double arrives_s = 0;         // from now; negative for a job that has arrived
  double deadline_s = 0;        // from now; kNever: none
  double weight = 1;
  int asked = -1;      // the option that the user asked for
  int guaranteed = 0;  // at least so many GPUs
  int current = -1;    // the option that it has; -1: none
  double pause_s = 0;  // what is left of a pause
  // How long a change to each option pauses it, from where it is now; empty: all alike.
  std::vector<double> pauses = {};
};

struct ShareRule {
  enum class Kind : uint8_t {
    kGreedy,   // as above
    kInOrder,  // asked options in order of arrival; the first that does not fit holds the others up
    kShortest,  // the job that could end soonest takes the GPUs with which it does, then the next
    kKeep,      // at the first step no running job changes; then as kGreedy
    // By price: the jobs in ascending order of the time that they can still wait; each takes the
    // cheapest option that fits and keeps its deadline, or if there is none the fastest that fits. A
    // deadline that no option keeps counts as none.
    kCheapest,
    kPatient,  // as kCheapest, but a job waits where a cheaper option would keep its deadline
  };
  Kind kind = Kind::kGreedy;
  double exponent = 1;
};

class Futures {
 public:
  // `budget`: GPUs by type. `prices`: of a GPU, by type; empty: play() sums times.
  Futures(std::vector<GpuOption> options, std::vector<int> budget, double switch_s,
          std::vector<double> prices = {});
  const std::vector<GpuOption>& options() const { return options_; }

  // Returns an option for each job, -1 for none. Jobs that have not arrived get none.
  std::vector<int> share(const std::vector<FluidJob>& jobs, const ShareRule& rule,
                         bool is_first) const;
  // Returns the weighted sum of the completion times (from the arrival to the end) to the power 1.5,
  // and of what is past deadlines, which counts many times. With prices: of the prices of the GPU
  // seconds, and far above these of missed deadlines. At most so many steps are played; what is left
  // then counts at its option.
  double play(std::vector<FluidJob> jobs, const ShareRule& rule, std::vector<int> first,
              int most_steps) const;

 private:
  std::vector<int> in_order(const std::vector<FluidJob>& jobs) const;
  std::vector<int> shortest(const std::vector<FluidJob>& jobs) const;
  std::vector<int> greedy(const std::vector<FluidJob>& jobs, double exponent, bool keeps) const;
  std::vector<int> by_price(const std::vector<FluidJob>& jobs, bool waits) const;
  double value(const FluidJob& job, size_t option, double scale) const;
  // Returns the seconds of the pause before the job works with an option.
  double pause_of(const FluidJob& job, size_t option) const;
  // Returns the seconds that the job still needs with an option, and what they cost.
  double time_of(const FluidJob& job, size_t option) const;
  double price_of(const FluidJob& job, size_t option) const;

  std::vector<GpuOption> options_;
  std::vector<int> budget_;
  double switch_s_;
  std::vector<double> prices_;
};

}  // namespace tessera::share
