#include "tessera/data/click_metrics.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "tessera/base/check.h"

namespace tessera {

double binary_cross_entropy(float label, double logit) {
  // This equals ln(1 + e^x) - label x, where x is the logit, but e^x cannot overflow.
  return std::max(logit, 0.0) + std::log1p(std::exp(-std::abs(logit))) -
         static_cast<double>(label) * logit;
}

double normalized_entropy(std::span<const float> labels, std::span<const double> logits) {
  TESSERA_CHECK(labels.size() == logits.size(), "{} labels, {} logits", labels.size(),
                logits.size());
  double entropy = 0, clicks = 0;
  for (size_t i = 0; i < labels.size(); ++i) {
    entropy += binary_cross_entropy(labels[i], logits[i]);
    clicks += static_cast<double>(labels[i]);
  }
  const auto count = static_cast<double>(labels.size());
  const double share = clicks / count;
  if (!(share > 0 && share < 1)) return std::numeric_limits<double>::quiet_NaN();
  return entropy / count / -(share * std::log(share) + (1 - share) * std::log1p(-share));
}

double area_under_roc(std::span<const float> labels, std::span<const double> scores) {
  TESSERA_CHECK(labels.size() == scores.size(), "{} labels, {} scores", labels.size(),
                scores.size());
  std::vector<size_t> order(labels.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return scores[a] < scores[b]; });
  double pairs = 0, others = 0, clicks = 0;  // pairs: how often a click has the higher score
  for (size_t begin = 0; begin < order.size();) {
    double tied_clicks = 0, tied_others = 0;
    size_t end = begin;
    for (; end < order.size() && scores[order[end]] == scores[order[begin]]; ++end) {
      (labels[order[end]] > 0.5F ? tied_clicks : tied_others) += 1;
    }
    pairs += tied_clicks * (others + tied_others / 2);
    others += tied_others;
    clicks += tied_clicks;
    begin = std::max(end, begin + 1);
  }
  return pairs / (clicks * others);
}

ClickQuality click_quality(std::span<const float> labels, std::span<const double> logits) {
  return {normalized_entropy(labels, logits), area_under_roc(labels, logits)};
}

}  // namespace tessera
