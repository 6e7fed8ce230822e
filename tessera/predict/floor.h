// The best scores that any predictor can have: rows with equal inputs get one prediction, whatever
// they report.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tessera/predict/row.h"
#include "tessera/predict/scores.h"

namespace tessera {

// Returns all that a prediction of the row may depend on, in one line.
std::string inputs_of(const Row& row);

// Returns all on which the time of one block of its model for one micro-batch depends: source, GPU,
// dtype, sizes without the number of layers, tp, cp, micro-batch; not pipeline, replicas, batch or
// depth.
std::string block_of(const Row& row);

struct SourceFloor {
  int64_t repeated = 0;  // rows that share their inputs with another row
  double mape = 0;       // least mean |predicted / measured - 1|
};
struct Floor {
  std::map<std::string, SourceFloor> by_source;
  double macro = 0;  // plain mean over sources
  double tau = 0;    // most, counted as Scores::tau: pairs of equal inputs cannot be ordered
  // Least, counted as Scores::regret: rows of equal inputs are equally good to a predictor, so the
  // choice costs their mean.
  double regret = 0;
};
// Returns the floor of the rows that have both values (ScoredRow::inputs).
Floor floor_of(const std::vector<ScoredRow>& rows);

// Returns the rows with the predictions of every block times the factor that leaves the least error
// (ScoredRow::block): the remaining error is not in the time of blocks, but in how a step is made
// of them.
std::vector<ScoredRow> with_block_factors(std::vector<ScoredRow> rows);

// Returns the mean over groups of Kendall's tau of the pairs whose inputs and measured values
// differ.
double tau_of_distinct(const std::vector<ScoredRow>& rows);

}  // namespace tessera
