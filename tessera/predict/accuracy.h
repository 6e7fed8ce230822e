// Predictions against what the sources report: the page docs/accuracy.md.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/predict/constants.h"
#include "tessera/predict/csv.h"
#include "tessera/predict/reality.h"
#include "tessera/predict/scores.h"

namespace tessera {

struct Accuracy {
  bool unnamed = false;
  int64_t rows = 0, expressed = 0;
  std::map<std::string, int64_t> refused;  // rows without figures, by reason
  std::vector<ScoredRow> fitted;           // constants fitted on all rows
  std::vector<ScoredRow> held_out;         // constants fitted without the row's source
  std::vector<ScoredRow> efficiency, efficiency_held_out, reference;  // baselines
  int64_t held_out_sources = 0;                        // that have constants of their own
  int64_t out_of_memory = 0, out_of_memory_found = 0;  // reported; of them predicted
  std::optional<Reality> reality;                      // steps measured on a machine
};

struct AccuracyOptions {
  int threads = 1;
  bool unnamed = false;  // rows are priced without the names of their sources
};
// Errors: those of read_rows and read_measured.
Result<Accuracy> measure_accuracy(const CsvTable& table, std::string_view file,
                                  const Constants& constants, const AccuracyOptions& options = {});

std::string accuracy_markdown(const Accuracy& accuracy);
std::string accuracy_json(const Accuracy& accuracy);
// A line for each row that has a reported step time or memory: s and bytes.
std::string accuracy_csv(const Accuracy& accuracy);

}  // namespace tessera
