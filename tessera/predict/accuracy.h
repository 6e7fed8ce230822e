// Compares predictions with what the sources report: the page docs/accuracy.md.
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

// Each row is priced in three ways, which differ in how much is known of its source. No row is held
// out in the strict sense: presets, styles and rules were chosen with all rows in sight.
struct Accuracy {
  bool names_hidden = false;  // also in the figures with names known
  int64_t rows = 0, expressed = 0;
  std::map<std::string, int64_t> refused;  // rows without figures, by reason
  std::vector<ScoredRow> unnamed;          // names of sources hidden, constants of other sources
  std::vector<ScoredRow> others;           // names known, constants of other sources
  std::vector<ScoredRow> all;              // names known, all constants
  // With names known, and with the rows' statements about recomputation taken as stated where the
  // data ignores them (frameworks.toml, recompute_as_stated): constants of other sources, all
  // constants.
  std::vector<ScoredRow> others_as_stated, all_as_stated;
  int64_t ignored_recompute = 0;  // rows whose statement is ignored
  // Baselines: the efficiencies found without the row's source, and with it.
  std::vector<ScoredRow> efficiency_others, efficiency_all, reference;
  int64_t sources_with_constants = 0;                  // of their own
  int64_t out_of_memory = 0, out_of_memory_found = 0;  // reported; of them predicted
  std::optional<Reality> reality;                      // steps measured on a machine
};

struct AccuracyOptions {
  int threads = 1;
  bool unnamed = false;  // hide the names of sources in all figures
};
// Prices and scores the rows. Errors: those of read_rows and read_measured.
Result<Accuracy> measure_accuracy(const CsvTable& table, std::string_view file,
                                  const Constants& constants, const AccuracyOptions& options = {});

std::string accuracy_markdown(const Accuracy& accuracy);
std::string accuracy_json(const Accuracy& accuracy);
// Writes a line for each row that has a reported step time or memory, in seconds and bytes.
std::string accuracy_csv(const Accuracy& accuracy);

}  // namespace tessera
