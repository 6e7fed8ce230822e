// One published run as a row of a CSV tells it: what is left empty there is unset here. Only what
// describes the run is read; columns with measured values (step_time_s, mem_GB, tflops_per_gpu,
// mfu, tokens_per_s_per_gpu) and remarks on them (notes, reported, provenance, quality) are not
// looked at and may be absent. Columns: docs/reference/predict.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/predict/csv.h"

namespace tessera {

struct Row {
  std::string id;
  std::string source, model, gpu, recompute, dtype;
  std::optional<double> params;
  std::optional<int64_t> layers, hidden, heads, kv_heads, ffn, seq, vocab;
  std::optional<int64_t> gpus, gpus_a_node;
  std::optional<int64_t> tp, pp, vpp, dp, cp, ep, zero, microbatch, global_batch;
  int line = 0;
  std::string problem;  // why the row cannot be read: a cell that is no number; empty: none
};

// Names of the columns that must be there.
const std::vector<std::string>& required_columns();

// Errors: columns that are missing, all of them in one line with the nearest names found.
Result<std::vector<Row>> read_rows(const CsvTable& table, std::string_view file);

}  // namespace tessera
