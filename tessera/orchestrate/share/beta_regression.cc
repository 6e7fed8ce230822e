#include "tessera/orchestrate/share/beta_regression.h"

#include <algorithm>
#include <cmath>

#include "tessera/orchestrate/share/random.h"

namespace tessera::share {
namespace {

constexpr size_t kInputs = 5, kMostRows = 2000, kBatch = 8, kPasses = 60;
constexpr int kDraws = 32;
constexpr double kRate = 1e-4, kDecay = 1e-4;
constexpr size_t kBias1 = BetaRegression::kHidden * kInputs;
constexpr size_t kOut = kBias1 + BetaRegression::kHidden;
constexpr size_t kBias2 = kOut + BetaRegression::kHidden;

// Returns the derivative of log(gamma).
double digamma(double x) {
  double out = 0;
  for (; x < 6; x += 1) out -= 1 / x;
  const double r = 1 / (x * x);
  return out + std::log(x) - 0.5 / x - r * (1.0 / 12 - r * (1.0 / 120 - r / 252));
}

struct Pass {
  std::array<double, BetaRegression::kHidden> hidden{};
  double raw = 0;  // before the relu
};

Pass forward(const BetaRegression::Weights& w, const ProgressRow& row) {
  Pass out;
  out.raw = w[kBias2];
  for (size_t h = 0; h < BetaRegression::kHidden; ++h) {
    double sum = w[kBias1 + h];
    for (size_t k = 0; k < kInputs; ++k) sum += w[h * kInputs + k] * row.features[k];
    out.hidden[h] = std::tanh(sum);
    out.raw += w[kOut + h] * out.hidden[h];
  }
  return out;
}

double row_loss(double a, double b, double share) {
  const double x = std::clamp(share, 1e-6, 1 - 1e-6);
  return -((a - 1) * std::log(x) + (b - 1) * std::log1p(-x) + std::lgamma(a + b) - std::lgamma(a) -
           std::lgamma(b));
}

}  // namespace

ProgressRow progress_row(const Observed& seen) {
  ProgressRow out;
  out.epochs = seen.epoch_samples > 0 ? seen.samples / seen.epoch_samples : 0;
  const double first = std::min(seen.first_loss, 100.0);
  out.features = {std::log(std::max(seen.epoch_samples, 1.0)), first, out.epochs,
                  first > 0 ? 1 - seen.loss / first : 0, seen.accuracy};
  return out;
}

double BetaRegression::beta_of(const Weights& weights, const ProgressRow& row) {
  return 1 + std::max(0.0, forward(weights, row).raw);
}

double BetaRegression::add_gradient(const Weights& w, const ProgressRow& row, Weights& gradient) {
  const Pass pass = forward(w, row);
  const double a = std::max(row.epochs, 1e-3), b = 1 + std::max(0.0, pass.raw);
  if (pass.raw > 0) {
    const double x = std::clamp(row.share, 1e-6, 1 - 1e-6);
    const double d = -(std::log1p(-x) + digamma(a + b) - digamma(b));  // of the loss by beta
    gradient[kBias2] += d;
    for (size_t h = 0; h < kHidden; ++h) {
      gradient[kOut + h] += d * pass.hidden[h];
      const double inner = d * w[kOut + h] * (1 - pass.hidden[h] * pass.hidden[h]);
      gradient[kBias1 + h] += inner;
      for (size_t k = 0; k < kInputs; ++k) gradient[h * kInputs + k] += inner * row.features[k];
    }
  }
  return row_loss(a, b, row.share);
}

// Draws weights several times, and keeps those with the least loss: with many draws no row is on the
// rising side of the relu, and such weights would never change.
void BetaRegression::draw_weights(Random& random, const std::vector<ProgressRow>& rows) {
  double least = 0;
  for (int draw = 0; draw < kDraws; ++draw) {
    Weights tried{};
    for (double& weight : tried) weight = random.normal();
    double sum = 0;
    for (const ProgressRow& row : rows)
      sum += row_loss(std::max(row.epochs, 1e-3), beta_of(tried, row), row.share);
    if (draw > 0 && sum >= least) continue;
    least = sum;
    weights_ = tried;
  }
}

void BetaRegression::fit(const std::vector<ProgressRow>& rows, uint64_t seed) {
  Random random(seed, rows.size());
  std::vector<ProgressRow> drawn;
  for (const ProgressRow& row : rows) {
    if (row.share < 1 && row.epochs > 0) drawn.push_back(row);
  }
  if (drawn.empty()) return;
  random.shuffle(drawn);
  drawn.resize(std::min(drawn.size(), kMostRows));
  draw_weights(random, drawn);
  Weights mean{}, square{};
  double decay1 = 1, decay2 = 1;
  for (size_t pass = 0; pass < kPasses; ++pass) {
    random.shuffle(drawn);
    for (size_t from = 0; from < drawn.size(); from += kBatch) {
      const size_t to = std::min(from + kBatch, drawn.size());
      Weights gradient{};
      for (size_t i = from; i < to; ++i) add_gradient(weights_, drawn[i], gradient);
      decay1 *= 0.9;
      decay2 *= 0.999;
      for (size_t i = 0; i < weights_.size(); ++i) {
        const double g = gradient[i] / static_cast<double>(to - from) + kDecay * weights_[i];
        mean[i] = 0.9 * mean[i] + 0.1 * g;
        square[i] = 0.999 * square[i] + 0.001 * g * g;
        weights_[i] -=
            kRate * (mean[i] / (1 - decay1)) / (std::sqrt(square[i] / (1 - decay2)) + 1e-8);
      }
    }
  }
  is_fitted_ = true;
}

double BetaRegression::beta(const ProgressRow& row) const {
  return is_fitted_ ? beta_of(weights_, row) : std::max(1.0, row.epochs);
}

double BetaRegression::loss(const std::vector<ProgressRow>& rows) const {
  double sum = 0;
  for (const ProgressRow& row : rows)
    sum += row_loss(std::max(row.epochs, 1e-3), beta(row), row.share);
  return rows.empty() ? 0 : sum / static_cast<double>(rows.size());
}

}  // namespace tessera::share
