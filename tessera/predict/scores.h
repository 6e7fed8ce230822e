// Computes scores that say how near predictions are to measured values.
//
//   const Scores scores = score(rows);
//   scores.macro;                         // mean over sources of the mean relative error
//   uncertainty_factor(rows, .68);        // 1 if 68 % of the errors are within the uncertainty
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace tessera {

// A row with its predicted and measured values. Times are in seconds, memory is in bytes, and 0
// means that there is no value.
struct ScoredRow {
  std::string source;
  std::string group;  // equal for rows that differ only in the plan: source, model, GPUs, batch
  char quality = 'A';
  double predicted = 0, measured = 0;
  double predicted_memory = 0, measured_memory = 0;
  std::string id = {};
  std::string inputs = {};  // inputs of the prediction, inputs_of() in floor.h
  std::string block = {};   // block_of() in floor.h
  double uncertainty = 0;   // stated relative uncertainty of the predicted time; 0: none
};

struct SourceScore {
  int64_t rows = 0;  // rows with a predicted and a measured time
  double mape = 0;   // mean of |predicted / measured - 1|
  double median = 0;
  double bias = 0;  // mean of predicted / measured - 1
};

struct Scores {
  std::map<std::string, SourceScore> by_source;
  double macro = 0;  // plain mean of the sources' mape
  int64_t groups = 0;
  double tau = 0;  // mean of Kendall's tau over groups of at least 4 rows
  // Mean over these groups of (time of the row predicted to be best) / (least time) - 1.
  double regret = 0;
  double worst_regret = 0;
  // For rows with an uncertainty: the share of rows whose error is at most the uncertainty, and the
  // share whose error is at most twice the uncertainty, each as a mean over sources. Normally
  // distributed errors give .68 and .95.
  double within = 0, within_twice = 0;
  int64_t memory_rows = 0;
  double memory_mape = 0, memory_bias = 0;
};

// Scores the rows whose quality is one of `qualities` ("AB").
Scores score(const std::vector<ScoredRow>& rows, const std::string& qualities = "ABC");

// Returns the factor by which the stated uncertainties must be multiplied so that the error of
// `share` of the rows is within its uncertainty. All sources have the same weight. Returns 1 if no
// row states an uncertainty.
double uncertainty_factor(const std::vector<ScoredRow>& rows, double share);

// Returns the share of rows (mean over sources) whose error is within a scaled uncertainty. For
// each source the uncertainty is multiplied by the uncertainty_factor() of the rows of all other
// sources.
double cross_validated_within(const std::vector<ScoredRow>& rows, double share);

// Returns Kendall's tau-a of two lists of equal length: (concordant - discordant) / pairs.
double kendall_tau(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace tessera
