// Prices published or planned runs: rows of a CSV go through the path that every user takes (model,
// plan, cluster, style -> program -> simulate). A row that cannot be expressed has a reason and no
// figures.
//
//   TESSERA_TRY(const PredictSettings settings, parse_settings({"megatron-core.plan.dropout=0"}));
//   TESSERA_TRY(const std::vector<Prediction> all, predict(rows, settings, /*threads=*/1));
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/predict/express.h"
#include "tessera/predict/row.h"
#include "tessera/simulate/simulation.h"

namespace tessera {

// Constants that replace those of frameworks, styles and machines, "[SCOPE.]KEY=VALUE". SCOPE is a
// framework (predict/framework.h) or a machine preset; without it every row is meant. KEY:
//   plan.<option>   of the framework: what its runs do (set_option in framework.h)
//   cluster         a change of the machine as apply_what_if() takes it: "device:peak*0.9"
//   <option>        of the style (cost/style.h)
// Where several settings concern a row and key, the last one counts.
struct Setting {
  std::string scope, key, value;
};
using PredictSettings = std::vector<Setting>;

// Reads settings. Errors: no '=', an unknown scope or key (with the nearest), a value that the key
// does not take.
Result<PredictSettings> parse_settings(const std::vector<std::string>& texts);

struct Prediction {
  std::string id;
  bool ok = false;
  double step_time_s = 0;
  // Peak of the device that has most, as the framework's log counts it (CountedMemory).
  double memory_bytes = 0;
  double device_bytes = 0;  // all that that device holds, context and buffers, too
  double uncertainty = 0;   // relative, one standard deviation: calibrated (assumptions.toml)
  std::string style;        // with what differs from its preset
  std::string reason;       // what was inferred or replaced; if not ok, why there are no figures
};

// Returns a prediction for each row, in their order. Rows whose programs are equal are lowered
// once; rows that are equal in all are simulated once. A program that needs far more than its GPUs
// have cannot be the one that has run: the values that the row left open are then made lighter
// (infer.h). `threads` >= 1 share the work; the result does not depend on them.
std::vector<Prediction> predict(const std::vector<Row>& rows, const PredictSettings& settings,
                                int threads);

// A row with settings of its own: both parts of a job live as long as the call.
struct PredictJob {
  const Row* row = nullptr;
  const PredictSettings* settings = nullptr;
};
std::vector<Prediction> predict(const std::vector<PredictJob>& jobs, int threads);

// One row with all that led to its prediction. Every micro-batch is played, for the critical path;
// predictions count rounds of micro-batches that repeat (simulate/engine_rounds.cc).
struct Explained {
  Expressed expressed;
  Simulation simulation;
  Prediction prediction;
};
Result<Explained> explain(const Row& row, const PredictSettings& settings);

// Returns the CSV that `tessera predict` writes: row_id, step_time_s, mem_GB (1e9 bytes),
// relative_uncertainty, style, reason.
std::string predictions_csv(const std::vector<Prediction>& predictions);

}  // namespace tessera
