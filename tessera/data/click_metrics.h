// Measures how good predictions of clicks are. Labels are 0 or 1. A prediction is a logit, ln(p /
// (1 - p)), where p is the predicted probability of a click.
#pragma once

#include <span>

namespace tessera {

// Returns -ln of the probability that the logit gives to the label, in nats. The result is finite
// for finite logits.
double binary_cross_entropy(float label, double logit);

// Returns the mean binary cross entropy of the predictions, divided by the mean binary cross
// entropy of the best constant prediction, which is the share of clicks. Below 1 the model has
// learned something; 0 is perfect (He et al., "Practical lessons from predicting clicks on ads at
// Facebook", 2014). Returns NaN if all labels are equal.
double normalized_entropy(std::span<const float> labels, std::span<const double> logits);

// Returns the area under the ROC curve: the probability that a random sample with a click has a
// higher score than a random sample without one. Equal scores count half. Scores may be logits or
// probabilities. Returns NaN if all labels are equal. Takes time n log n.
double area_under_roc(std::span<const float> labels, std::span<const double> scores);

struct ClickQuality {
  double normalized_entropy = 0, auc = 0;  // each NaN where it is not defined
};
ClickQuality click_quality(std::span<const float> labels, std::span<const double> logits);

}  // namespace tessera
