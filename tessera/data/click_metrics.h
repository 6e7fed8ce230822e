// Quality of predictions of clicks. Labels are 0 or 1; a logit is ln(p / (1 - p)) of the predicted
// probability p.
#pragma once

#include <span>

namespace tessera {

// Returns -ln of the probability that the logit gives to the label, in nats; finite for finite
// logits.
double binary_cross_entropy(float label, double logit);

// Returns the mean binary cross entropy, divided by that of the best constant prediction, the share
// of clicks: below 1 the model learned something, 0 is perfect (He et al., "Practical lessons from
// predicting clicks on ads at Facebook", 2014). NaN if all labels are equal.
double normalized_entropy(std::span<const float> labels, std::span<const double> logits);

// Returns the area under the ROC curve: the probability that a random clicked sample has the higher
// score than a random other one, ties counted half. Scores may be logits or probabilities. NaN if
// all labels are equal. Time n log n.
double area_under_roc(std::span<const float> labels, std::span<const double> scores);

struct ClickQuality {
  double normalized_entropy = 0, auc = 0;  // NaN if it does not exist
};
ClickQuality click_quality(std::span<const float> labels, std::span<const double> logits);

}  // namespace tessera
