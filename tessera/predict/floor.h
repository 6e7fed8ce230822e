// The best scores that any predictor can have. They are not perfect because rows with equal inputs
// get the same prediction, although they may report different step times.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tessera/predict/row.h"
#include "tessera/predict/scores.h"

namespace tessera {

// Returns a line of text with everything in the row on which a prediction may depend. Rows with
// equal lines get equal predictions.
std::string inputs_of(const Row& row);

// Returns a line of text with everything on which the time of one block of the row's model for one
// micro-batch depends: source, GPU, dtype, sizes without the number of layers, tp, cp and
// micro-batch. Pipeline stages, replicas, batch and number of layers are not in the line.
std::string block_of(const Row& row);

struct SourceFloor {
  int64_t repeated = 0;  // rows that share their inputs with another row
  double mape = 0;       // the least possible mean of |predicted / measured - 1|
};
struct Floor {
  std::map<std::string, SourceFloor> by_source;
  double macro = 0;  // plain mean of mape over the sources
  double tau = 0;    // the largest possible Scores::tau: pairs with equal inputs cannot be ordered
  // The least possible Scores::regret. A predictor cannot distinguish rows with equal inputs, so if
  // it chooses one of them, it gets their mean time.
  double regret = 0;
};
// Returns the floor of those rows that have a predicted and a measured time. Rows with equal
// ScoredRow::inputs count as equal.
Floor floor_of(const std::vector<ScoredRow>& rows);

// Returns the rows with corrected predictions. For each value of ScoredRow::block, all predictions
// are multiplied by the one factor that gives the least error. The error that remains does not come
// from the time of a block but from how a step is composed of blocks.
std::vector<ScoredRow> with_block_factors(std::vector<ScoredRow> rows);

// Returns the mean over all groups of Kendall's tau, where only pairs of rows with different inputs
// and different measured values count.
double tau_of_distinct(const std::vector<ScoredRow>& rows);

}  // namespace tessera
