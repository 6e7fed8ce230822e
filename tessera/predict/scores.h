// Scores of predictions against measured values.
//
//   const Scores scores = score(rows);
//   scores.macro;                         // mean over sources of the mean relative error
//   uncertainty_factor(rows, .68);        // 1 if 68 % of the rows lie within what they say
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace tessera {

// One row as scores see it; times in seconds, memory in bytes, 0 where there is none.
struct ScoredRow {
  std::string source;
  std::string group;  // rows that differ in plan alone: source, model, GPUs, batch
  char quality = 'A';
  double predicted = 0, measured = 0;
  double predicted_memory = 0, measured_memory = 0;
  std::string id = {};
  std::string inputs = {};  // of the predictor (floor.h)
  std::string block = {};   // what the time of one block of the model depends on (floor.h)
  double uncertainty = 0;   // of the predicted time, relative, as it was said; 0: none was
};

struct SourceScore {
  int64_t rows = 0;  // with both values
  double mape = 0;   // mean |predicted / measured - 1|
  double median = 0;
  double bias = 0;  // mean of predicted / measured - 1
};

struct Scores {
  std::map<std::string, SourceScore> by_source;
  double macro = 0;  // plain mean of the sources' mape
  int64_t groups = 0;
  double tau = 0;     // mean of Kendall's tau over groups of at least 4 rows
  double regret = 0;  // mean over them of measured(best predicted) / measured(best) - 1
  double worst_regret = 0;
  // Rows that say their uncertainty: the shares whose error is within it and within twice it; mean
  // over sources. Normal errors give .68 and .95.
  double within = 0, within_twice = 0;
  int64_t memory_rows = 0;
  double memory_mape = 0, memory_bias = 0;
};

// Scores the rows. `qualities`: the qualities that count, as "AB".
Scores score(const std::vector<ScoredRow>& rows, const std::string& qualities = "ABC");

// Returns the factor on the stated uncertainties with which `share` of the rows lie within them,
// each source with the same weight; 1 if no row says an uncertainty.
double uncertainty_factor(const std::vector<ScoredRow>& rows, double share);

// Returns the share of rows (mean over sources) that lie within their uncertainty when, for each
// source, it is scaled by the factor that was found without that source's rows.
double cross_validated_within(const std::vector<ScoredRow>& rows, double share);

// Returns Kendall's tau-a of two lists of equal length: (concordant - discordant) / pairs.
double kendall_tau(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace tessera
