// Predicts published or planned runs, which are rows of a CSV. A row takes the same path as a
// user's own run: model, plan, cluster and style give a program, which is simulated. If a row
// cannot be expressed in this way, its prediction has a reason and no figures.
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

// A constant that replaces one of a framework, style or machine, written "[SCOPE.]KEY=VALUE". SCOPE
// is a framework (predict/framework.h) or a machine preset; without SCOPE the setting is for all
// rows. KEY is:
//   plan.<option>   of the framework: what its runs do (set_option in framework.h)
//   cluster         a change of the machine as apply_what_if() takes it: "device:peak*0.9"
//   <option>        of the style (cost/style.h)
// If several settings are for the same row and key, the last one counts.
struct Setting {
  std::string scope, key, value;
};
using PredictSettings = std::vector<Setting>;

// Reads settings. Returns an error if a text has no '=', its scope or key is unknown (the message
// names the nearest one), or the key cannot have this value.
Result<PredictSettings> parse_settings(const std::vector<std::string>& texts);

struct Prediction {
  std::string id;
  bool ok = false;
  double step_time_s = 0;
  // Peak memory of the device that uses the most, as the framework's log counts memory
  // (CountedMemory).
  double memory_bytes = 0;
  double device_bytes = 0;  // all memory in use on that device, with context and buffers
  double uncertainty = 0;   // one standard deviation / step_time_s, calibrated (assumptions.toml)
  std::string style;        // text of the style, with the options that differ from the preset
  std::string reason;  // values that were inferred or replaced; if not ok, why there are no figures
};

// Returns a prediction for each row, in the order of the rows. Rows with equal programs are lowered
// once; rows with equal programs, machines and styles are simulated once. If a program needs far
// more memory than its GPUs have, the published run cannot have been like this, so values that the
// row does not state are changed to need less memory (lighter() in infer.h). `threads` is at least
// 1 and does not change the result.
std::vector<Prediction> predict(const std::vector<Row>& rows, const PredictSettings& settings,
                                int threads);

// A row with its own settings. Both must exist until predict() returns.
struct PredictJob {
  const Row* row = nullptr;
  const PredictSettings* settings = nullptr;
};
std::vector<Prediction> predict(const std::vector<PredictJob>& jobs, int threads);

// A row's prediction with everything that led to it. For explain() every micro-batch is simulated,
// because the critical path needs that. For predictions repeated rounds of micro-batches are
// simulated once and counted (simulate/round_counter.h).
struct Explained {
  Expressed expressed;
  Simulation simulation;
  Prediction prediction;
};
Result<Explained> explain(const Row& row, const PredictSettings& settings);

// Returns the CSV that `tessera predict` writes, with the columns row_id, step_time_s, mem_GB (in
// 1e9 bytes), relative_uncertainty, style, reason.
std::string predictions_csv(const std::vector<Prediction>& predictions);

}  // namespace tessera
