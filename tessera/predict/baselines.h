// Predictors that predictions should beat.
#pragma once

#include <string>
#include <vector>

#include "tessera/predict/infer.h"

namespace tessera {

// One row of the efficiency baseline: a completed row and its measured step, 0 if there is none.
struct BaselineRow {
  const Run* run = nullptr;  // null: not completed
  std::string source, gpu, dtype;
  double measured_s = 0;
};

// Predicts hardware FLOP at one efficiency for each GPU and dtype (the median of what the rows
// reach; of the dtype, or of all, where a pair has no rows), stretched by the pipeline's bubble.
// `of_others`: the efficiencies for a row are found without the rows of its source. 0 where a row
// is not completed.
std::vector<double> efficiency_baseline(const std::vector<BaselineRow>& rows, bool of_others);

// Predicts by a closed form, fitted on 16-bit A100 runs of Megatron-DeepSpeed (vTrain); with other
// devices its rates scale by their peak and memory rate. 0 for models that are not a GPT or a
// Llama.
double reference_model(const Run& run);

}  // namespace tessera
