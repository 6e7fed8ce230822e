// Compares predictions with the measurements that the sources report, and writes the page
// docs/accuracy.md.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tessera/base/csv.h"
#include "tessera/base/result.h"
#include "tessera/predict/constants.h"
#include "tessera/predict/reality.h"
#include "tessera/predict/scores.h"

namespace tessera {

// The scores of all rows. Each row is predicted in three ways, which differ in what the prediction
// may know about the row's source. No row is held out in the strict sense, because presets, styles
// and rules were chosen while all rows were known.
struct Accuracy {
  bool names_hidden = false;  // true: names of sources are hidden in all figures
  int64_t rows = 0, expressed = 0;
  std::map<std::string, int64_t> refused;  // number of rows without figures, by reason
  std::vector<ScoredRow> unnamed;  // name of the source hidden, constants fitted on other sources
  std::vector<ScoredRow> others;   // name known, constants fitted on other sources
  std::vector<ScoredRow> all;      // name known, all constants
  // As `others` and `all`, but what a row states about recomputation is always used. In `others`
  // and `all` some frameworks ignore it (recompute_as_stated = false in frameworks.toml).
  std::vector<ScoredRow> others_as_stated, all_as_stated;
  int64_t ignored_recompute = 0;  // rows whose statement about recomputation is ignored
  // Baselines (baselines.h): efficiency_baseline() with efficiencies found without the rows of the
  // row's source, and with them; and reference_model().
  std::vector<ScoredRow> efficiency_others, efficiency_all, reference;
  // Sources for whose rows `others` and `all` use different constants.
  int64_t sources_with_constants = 0;
  // Rows that report it; how many of these are predicted so.
  int64_t out_of_memory = 0, out_of_memory_found = 0;
  std::vector<Reality> reality;  // steps measured on machines (reality.h)
};

struct AccuracyOptions {
  int threads = 1;
  bool unnamed = false;  // true: hide the names of sources in all figures
};
// Predicts and scores the rows. Returns the errors of read_rows() and read_measured().
Result<Accuracy> measure_accuracy(const CsvTable& table, std::string_view file,
                                  const Constants& constants, const AccuracyOptions& options = {});

std::string accuracy_markdown(const Accuracy& accuracy);
std::string accuracy_json(const Accuracy& accuracy);
// Writes a CSV line for each row that reports a step time or memory. Times are in seconds, memory
// is in bytes.
std::string accuracy_csv(const Accuracy& accuracy);

}  // namespace tessera
