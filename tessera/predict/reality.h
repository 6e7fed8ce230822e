// Compares step times that were measured on a machine with step times that were predicted for it.
// Reads a file that benchmarks/run_reality.py or benchmarks/run_slow_links.py writes, and writes a
// section of docs/accuracy.md.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/base/result.h"

namespace tessera {

struct MeasuredPair {
  std::string model, plan, transport;  // short name of the model, the plan, the transport
  int64_t ranks = 1;
  double predicted = 0;                      // predicted step time, s
  std::vector<double> runs;                  // measured: median step time of each run, s; not empty
  int64_t predicted_bytes = 0, bytes = 0;    // bytes sent by all ranks in a step
  int64_t predicted_memory = 0, memory = 0;  // peak bytes of the rank with the most
};

struct Reality {
  std::string date, command;
  std::string title, method;                // what was compared, and how
  double target_error = 0, target_tau = 0;  // goals for RealityScores::median_error and tau
  // Pairs of name and description.
  std::vector<std::pair<std::string, std::string>> machine, models;
  std::vector<MeasuredPair> pairs;  // not empty
  int64_t failed = 0;               // number of pairs without a measurement
};

// Reads the text of the file. Returns an error (invalid input) that names `file` and the key if the
// text has another form.
Result<Reality> parse_reality(std::string_view json, std::string_view file);

struct RealityScores {
  // Relative errors of the predicted step time.
  double median_error = 0, mean_error = 0, worst_error = 0, bias = 0;
  double tau = 0;  // Kendall's tau without pairs whose measured times differ by less than 2 %
  double tau_within_models = 0;  // as `tau`, but only pairs of the same model
  double spread = 0;             // median over the pairs of (slowest - fastest run) / median run
  int64_t exact = 0;             // number of pairs whose bytes and memory are as predicted
};
RealityScores score(const Reality& reality);

// Writes a section of a Markdown page with scores, a table of the pairs, the models and the
// machine.
std::string reality_markdown(const Reality& reality);
// Writes the scores as JSON.
std::string reality_json(const Reality& reality);

}  // namespace tessera
