// Internal to the runtime: how an evaluation visits samples whose number is no multiple of the
// batch, so that each counts once. The batch has a fixed size and no place may be empty, since a
// loss is a mean over all its places. The samples left after the last whole batch fill batches in
// several passes, each of which begins further on, so that over all passes each of these samples
// stands in equally many places; the mean over the passes is their mean.
//
//   SamplePasses passes(/*batch=*/4, /*samples=*/7);   // 0 1 2 3 | 4 5 6 4 | 5 6 4 5 | 6 4 5 6
//   for (int64_t step = 0; step < passes.steps(); ++step) losses.push_back(loss of the step);
//   const double loss = passes.mean(losses);
//
// The mean is exact if a sample's loss does not depend on the others of its batch. If it does
// (statistics of a batch), the statistics are those of batches that hold only the samples left.
#pragma once

#include <cstdint>
#include <numeric>
#include <vector>

namespace tessera {

class SamplePasses {
 public:
  SamplePasses(int64_t batch, int64_t samples)
      : batch_(batch), samples_(samples), whole_(samples / batch), left_(samples % batch) {
    if (left_ == 0) return;
    shift_ = batch % left_;
    passes_ = left_ / std::gcd(left_, shift_);
  }

  int64_t batch() const { return batch_; }
  int64_t samples() const { return samples_; }
  int64_t steps() const { return whole_ + passes_; }
  int64_t whole_steps() const { return whole_; }
  // Returns the sample at a place of the steps: place i of step s is s * batch + i.
  int64_t sample(int64_t place) const {
    const int64_t pass = place / batch_ - whole_;
    if (pass < 0 || left_ == 0) return place % samples_;
    return whole_ * batch_ + (place % batch_ + pass * shift_) % left_;
  }
  // Returns how many of a step's first places hold samples that no earlier place held.
  int64_t fresh(int64_t step) const { return step < whole_ ? batch_ : step == whole_ ? left_ : 0; }
  // Returns the mean over the samples; `losses` has one for each step.
  double mean(const std::vector<double>& losses) const {
    double whole = 0, left = 0;
    for (int64_t step = 0; step < steps(); ++step)
      (step < whole_ ? whole : left) += losses[static_cast<size_t>(step)];
    const double mean_left = passes_ == 0 ? 0 : left / static_cast<double>(passes_);
    return (static_cast<double>(batch_) * whole + static_cast<double>(left_) * mean_left) /
           static_cast<double>(samples_);
  }

 private:
  int64_t batch_, samples_;
  int64_t whole_ = 0, left_ = 0;    // whole batches, and the samples behind them
  int64_t passes_ = 0, shift_ = 0;  // over these
};

}  // namespace tessera
