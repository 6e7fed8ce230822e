// tessera evaluate: prints what predict() finds, and writes the outputs.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>

#include "tessera/cli/output.h"
#include "tessera/cli/with_runtime/commands.h"
#include "tessera/data/npy_file.h"
#include "tessera/runtime/predicting.h"
#include "tessera/runtime/run_config.h"

namespace tessera::cli::with_runtime {

Result<int> evaluate(const EvaluateOptions& options) {
  RunConfig keys;  // reads the data as a run file does
  if (auto read = set_run_key(keys, "data=" + options.data); !read)
    return invalid_input("evaluate: --data: " + read.error().message);
  PredictConfig config;
  config.model = options.model;
  config.weights = options.weights;
  config.data = keys.data;
  config.plan = options.plan;
  config.precision = options.precision;
  config.batch = options.batch;
  config.samples = options.samples;
  config.tensor = options.tensor;
  config.timeout_s = options.timeout_s;
  TESSERA_TRY(const Predictions made, predict(config));
  if (!options.out.empty())
    TESSERA_TRY_VOID(write_npy(options.out, made.outputs, {made.samples, made.width}));
  if (options.json) {
    nlohmann::ordered_json json{{"samples", made.samples},
                                {"loss", made.loss},
                                {"seconds_per_sample", made.seconds_a_sample},
                                {"multiply_adds_per_sample", made.multiply_adds}};
    if (made.accuracy) json["accuracy"] = *made.accuracy;  // null if it is not a number
    return print(json.dump() + "\n");
  }
  const std::string accuracy = made.accuracy ? ", " + accuracy_text(*made.accuracy) : "";
  return print(fmt::format(
      "{} samples: loss {:.4f}{}; {:.3g} ms and {:.4g} million multiply-adds a "
      "sample\n",
      made.samples, made.loss, accuracy, 1e3 * made.seconds_a_sample, 1e-6 * made.multiply_adds));
}

}  // namespace tessera::cli::with_runtime
