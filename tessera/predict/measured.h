// Reads the measurements that the sources report. Only `tessera accuracy` uses this file;
// predictions never see measurements.
#pragma once

#include <string>
#include <vector>

#include "tessera/base/csv.h"
#include "tessera/base/result.h"
#include "tessera/predict/predict.h"

namespace tessera {

struct MeasuredRun {
  double step_time_s = 0;           // 0: not reported
  double tokens_per_s_per_gpu = 0;  // 0: not reported; used for rows without a batch
  double tflops_per_gpu = 0;
  double memory_bytes = 0;  // 0: not reported
  char quality = 'C';       // quality of the report: A, B or C
  bool out_of_memory = false;
};

// Reads the measured run of each row, in the order of the rows. mem_GB is read as GiB if the row's
// notes say so. Returns an error for a missing column or a cell that is not a number.
Result<std::vector<MeasuredRun>> read_measured(const CsvTable& table, std::string_view file);

// Returns the measured step time of the run that was predicted. This is the reported step time; if
// none is reported, it is computed from tokens/s, or else from TFLOP/s and model_flops_a_token().
// Returns 0 if nothing is reported.
double measured_step(const MeasuredRun& measured, const Run& run);

// Returns the model's FLOP for one token, forward and backward, by the usual convention: 6 FLOP for
// each parameter, attention counted in full (without the causal mask), no recompute.
double model_flops_a_token(const Run& run);

}  // namespace tessera
