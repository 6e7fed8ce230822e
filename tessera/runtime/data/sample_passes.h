// Internal to the runtime: how an evaluation visits samples whose number is no multiple of the
// batch size, so that each sample counts once. The batch has a fixed size and no place of it may be
// empty, since the loss is a mean over all places. So the samples that are left after the last
// whole batch fill several further batches, called passes. They are repeated in a cycle that
// continues from pass to pass, so that over all passes each of these samples is in equally many
// places. The mean of the passes' losses is then the mean over these samples.
//
//   SamplePasses passes(/*batch=*/4, /*samples=*/7);   // 0 1 2 3 | 4 5 6 4 | 5 6 4 5 | 6 4 5 6
//   for (int64_t step = 0; step < passes.steps(); ++step) losses.push_back(loss of the step);
//   const double loss = passes.mean(losses);
//
// The mean is exact if the loss of a sample does not depend on the other samples of its batch. If
// the loss depends on statistics of the batch, the left samples are evaluated with the statistics
// of batches that hold only these samples.
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
  // Returns the number of the sample at a place. Places count over all steps: place i of step s has
  // the number s * batch + i.
  int64_t sample(int64_t place) const {
    const int64_t pass = place / batch_ - whole_;
    if (pass < 0 || left_ == 0) return place % samples_;
    return whole_ * batch_ + (place % batch_ + pass * shift_) % left_;
  }
  // Returns how many places of a step, from its first place on, hold samples that no earlier
  // step had.
  int64_t fresh(int64_t step) const { return step < whole_ ? batch_ : step == whole_ ? left_ : 0; }
  // Returns the mean loss over all samples; `losses` has the mean loss of each step.
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
  int64_t whole_ = 0, left_ = 0;    // number of whole batches, and of samples left after them
  int64_t passes_ = 0, shift_ = 0;  // number of passes over the left samples; how far each pass
                                    // shifts them
};

}  // namespace tessera
