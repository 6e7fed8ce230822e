// Simple predictors, whose errors are compared with those of the predictions.
#pragma once

#include <string>
#include <vector>

#include "tessera/predict/infer.h"

namespace tessera {

// One row of the efficiency baseline: the completed row (infer.h) and its measured step time, which
// is 0 if none is reported.
struct BaselineRow {
  const Run* run = nullptr;  // null: the row could not be completed
  std::string source, gpu, dtype;
  double measured_s = 0;
};

// Predicts the step time as FLOP / (peak * efficiency), where FLOP include recomputation and are
// increased by the share of the pipeline's bubble. Each pair (GPU, dtype) has one efficiency, the
// median of the efficiencies that its rows reach. If a pair has no rows, uses the rows of the
// dtype, or else all rows. If `of_others`, the efficiency for a row is found without the rows of
// its source. Returns 0 for a row that is not completed.
std::vector<double> efficiency_baseline(const std::vector<BaselineRow>& rows, bool of_others);

// Predicts the step time by a formula that was fitted on 16-bit A100 runs of Megatron-DeepSpeed
// (vTrain). For other devices its rates are scaled by their peak and memory rate. Returns 0 for
// models that are not a GPT or a Llama.
double reference_model(const Run& run);

}  // namespace tessera
