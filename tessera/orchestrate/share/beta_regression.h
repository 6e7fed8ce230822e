// Predicts how far a training job has come: the share rho of its samples that it has processed, as
// rho ~ Beta(alpha, beta) with alpha = epochs done and beta = 1 + relu(w2 . tanh(W1 x + c1) + c2). The
// mean alpha / (alpha + beta) says that beta is the expected number of remaining epochs.
//
// Features x: [ln D, first loss (at most 100), epochs done, 1 - loss / first loss, accuracy], where D
// is the size of an epoch in samples, in training and in prediction alike. The loss is the mean of
// -log of the density; Adam, rate 1e-4, weight decay 1e-4, batches of 8, 60 passes over at most 2,000
// rows, from weights that are drawn anew: of 32 draws the one with the least loss.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "tessera/orchestrate/share/job.h"
#include "tessera/orchestrate/share/random.h"

namespace tessera::share {

struct ProgressRow {
  std::array<double, 5> features{};
  double epochs = 0;  // alpha
  double share = 0;   // the target: samples so far over all samples
};
// Returns the features of a job; `epochs` is samples so far over samples of an epoch.
ProgressRow progress_row(const Observed& seen);

class BetaRegression {
 public:
  // Fits the weights to finished jobs. Rows with a share of 1 are left out.
  void fit(const std::vector<ProgressRow>& rows, uint64_t seed);
  // Returns beta; before the first fit the epochs done, so that the mean share is one half.
  double beta(const ProgressRow& row) const;
  // Returns the mean loss of the rows.
  double loss(const std::vector<ProgressRow>& rows) const;

  static constexpr size_t kHidden = 64;
  // W1 (hidden x 5), c1, w2, c2.
  using Weights = std::array<double, kHidden * 5 + kHidden + kHidden + 1>;
  // Adds the gradient of one row's loss to `gradient`, and returns the loss.
  static double add_gradient(const Weights& weights, const ProgressRow& row, Weights& gradient);
  static double beta_of(const Weights& weights, const ProgressRow& row);

 private:
  void draw_weights(Random& random, const std::vector<ProgressRow>& rows);

  Weights weights_{};
  bool is_fitted_ = false;
};

}  // namespace tessera::share
