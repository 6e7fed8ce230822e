// Reads what the sources report of their runs. Only `tessera accuracy` reads it: prediction never
// sees it.
#pragma once

#include <string>
#include <vector>

#include "tessera/base/csv.h"
#include "tessera/base/result.h"
#include "tessera/predict/predict.h"

namespace tessera {

struct MeasuredRun {
  double step_time_s = 0;           // 0: not reported
  double tokens_per_s_per_gpu = 0;  // for rows without a batch
  double tflops_per_gpu = 0;
  double memory_bytes = 0;  // 0: not reported
  char quality = 'C';       // A, B or C
  bool out_of_memory = false;
};

// Reads the runs by row. mem_GB is read as GiB where the row's notes say so. Errors: a missing
// column, a cell that is no number.
Result<std::vector<MeasuredRun>> read_measured(const CsvTable& table, std::string_view file);

// Returns the step time of the run that was predicted: as reported, else from tokens/s, else from
// TFLOP/s by the convention for the model's FLOP (6 a parameter and token, attention in full, no
// recompute); 0 if nothing is reported.
double measured_step(const MeasuredRun& measured, const Run& run);

// Returns the model's FLOP for one token, forward and backward, without recompute.
double model_flops_a_token(const Run& run);

}  // namespace tessera
