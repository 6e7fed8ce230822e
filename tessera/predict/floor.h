// The best scores that any predictor can have: rows whose every input is equal get one prediction,
// whatever they report.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tessera/predict/row.h"
#include "tessera/predict/scores.h"

namespace tessera {

// All that a prediction of the row may depend on, in one line.
std::string inputs_of(const Row& row);

// What the time of one block of its model for one micro-batch depends on: source, GPU, dtype, sizes
// without the number of layers, tp, cp, micro-batch; not pipeline, replicas, batch or depth.
std::string block_of(const Row& row);

struct SourceFloor {
  int64_t repeated = 0;  // rows that share their inputs with another row
  double mape = 0;       // least mean |predicted / measured - 1|
};
struct Floor {
  std::map<std::string, SourceFloor> by_source;
  double macro = 0;  // plain mean over sources
  double tau = 0;    // most, as Scores::tau counts: pairs of equal inputs cannot be ordered
  // Least, as Scores::regret counts: of rows of equal inputs one is as good as the other, so the
  // choice costs their mean.
  double regret = 0;
};
// Of the rows that have both values (ScoredRow::inputs).
Floor floor_of(const std::vector<ScoredRow>& rows);

// The rows with the predictions of every block times the factor that leaves the least error
// (ScoredRow::block): what is wrong then is not the time of blocks, but how a step is made of them.
std::vector<ScoredRow> with_block_factors(std::vector<ScoredRow> rows);

// Mean over groups of Kendall's tau of the pairs whose inputs and measured values differ.
double tau_of_distinct(const std::vector<ScoredRow>& rows);

}  // namespace tessera
