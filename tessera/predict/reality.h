// Step times that were measured on a machine beside those that were predicted for it: the file that
// benchmarks/run_reality.py writes, and its section of docs/accuracy.md.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/base/result.h"

namespace tessera {

struct MeasuredPair {
  std::string model, plan, transport;  // the model's short name
  int64_t ranks = 1;
  double predicted = 0;                      // step time, s
  std::vector<double> runs;                  // median step time of each run, s; not empty
  int64_t predicted_bytes = 0, bytes = 0;    // sent by all ranks, a step
  int64_t predicted_memory = 0, memory = 0;  // bytes, peak of the rank with the most
};

struct Reality {
  std::string date, command;
  std::vector<std::pair<std::string, std::string>> machine, models;  // name, description
  std::vector<MeasuredPair> pairs;                                   // not empty
  int64_t failed = 0;                                                // pairs without a measurement
};

// Reads the file. Errors: invalid_input for another text, with the key; `file` names it.
Result<Reality> parse_reality(std::string_view json, std::string_view file);

struct RealityScores {
  double median_error = 0, mean_error = 0, worst_error = 0, bias = 0;  // of the step time
  double tau = 0;  // Kendall's; pairs whose measured times are within 2 % are not counted
  double tau_within_models = 0;  // as `tau`, of plans of a model
  double spread = 0;             // median of the pairs' (largest - smallest run) / median run
  int64_t exact = 0;             // pairs whose bytes and memory are as predicted
};
RealityScores score(const Reality& reality);

// Writes a section of a Markdown page: scores, table of pairs, models, machine.
std::string reality_markdown(const Reality& reality);
// Writes the scores.
std::string reality_json(const Reality& reality);

}  // namespace tessera
