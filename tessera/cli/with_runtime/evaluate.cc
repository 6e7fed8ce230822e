// tessera evaluate: prints the results of predict() and writes the outputs.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>

#include "tessera/base/json_text.h"
#include "tessera/base/text.h"
#include "tessera/cli/output.h"
#include "tessera/cli/with_runtime/commands.h"
#include "tessera/data/npy_file.h"
#include "tessera/models/graph_file.h"
#include "tessera/runtime/cached_rows/choosing_widths.h"
#include "tessera/runtime/evaluation/predicting.h"
#include "tessera/runtime/run_config.h"

namespace tessera::cli::with_runtime {

namespace {

Result<int> choose(const EvaluateOptions& options, const PredictConfig& config) {
  if (!options.out.empty() && !options.out.ends_with(kGraphSuffix)) {
    return invalid_input(fmt::format("evaluate: expected --out NAME{} with --budget, found '{}'",
                                     kGraphSuffix, options.out));
  }
  TESSERA_TRY(const ChosenWidths chosen,
              choose_sample_widths({config, *options.budget, options.sampler, options.widths}));
  if (!options.out.empty()) {
    TESSERA_TRY_VOID(write_file(
        options.out, fmt::format("# {} with samples: written by tessera evaluate --budget\n{}",
                                 options.model, to_text(chosen.network))));
  }
  if (options.json) {
    nlohmann::ordered_json json{{"accuracy", chosen.accuracy},
                                {"accuracy_of_all_edges", chosen.full_accuracy},
                                {"evaluations", chosen.asked},
                                {"layers", nlohmann::ordered_json::array()}};
    for (const ChosenWidths::Layer& layer : chosen.layers) {
      json["layers"].push_back({{"op", layer.path},
                                {"width", layer.width},
                                {"edges", layer.edges},
                                {"all_edges", layer.all_edges}});
    }
    return print(dumped(json) + "\n");
  }
  Table table({"layer", "width of samples", "edges", "share"});
  for (const ChosenWidths::Layer& layer : chosen.layers) {
    const double share = static_cast<double>(layer.edges) / static_cast<double>(layer.all_edges);
    table.add({layer.path, std::to_string(layer.width), grouped(layer.edges), percent(share)});
  }
  return print(fmt::format("{}{} with these samples, {} with all edges; {} evaluations\n",
                           table.to_string(), accuracy_text(chosen.accuracy),
                           accuracy_text(chosen.full_accuracy), chosen.asked));
}

}  // namespace

Result<int> evaluate(const EvaluateOptions& options) {
  RunConfig keys;  // for the data, read as in a run file
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
  if (options.budget) return choose(options, config);
  if (!options.widths.empty())
    return invalid_input("evaluate: expected --widths with --budget, found it alone");
  TESSERA_TRY(const Predictions made, predict(config));
  if (!options.out.empty())
    TESSERA_TRY_VOID(write_npy(options.out, made.outputs, {made.samples, made.width}));
  if (options.json) {
    nlohmann::ordered_json json{{"samples", made.samples},
                                {"loss", made.loss},
                                {"seconds_per_sample", made.seconds_a_sample},
                                {"multiply_adds_per_sample", made.multiply_adds}};
    if (made.accuracy) json["accuracy"] = *made.accuracy;  // null if it is not a number
    return print(dumped(json) + "\n");
  }
  const std::string accuracy = made.accuracy ? ", " + accuracy_text(*made.accuracy) : "";
  return print(fmt::format(
      "{} samples: loss {:.4f}{}; {:.3g} ms and {:.4g} million multiply-adds a "
      "sample\n",
      made.samples, made.loss, accuracy, 1e3 * made.seconds_a_sample, 1e-6 * made.multiply_adds));
}

}  // namespace tessera::cli::with_runtime
