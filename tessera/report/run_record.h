// The record of a run, as the runtime writes it into `metrics.jsonl` of the run's folder
// (docs/reference/run-config.md, section "The record of a run"), read back and drawn as text: loss
// beside evaluations, throughput and memory over the steps, with the restarts marked; of a model with
// embedding tables, where they rest and what each rank keeps of them.
//
//   TESSERA_TRY(const std::string text, read_file(path));
//   TESSERA_TRY(const RunRecord record, parse_run_record(text, path));
//   fmt::print("{}", draw(record));
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/result.h"

namespace tessera {

inline constexpr std::string_view kRunRecordFile = "metrics.jsonl";

struct RunRecord {
  // What a rank keeps of an embedding table between steps.
  struct TableShare {
    std::string table;
    int64_t rank = 0, first_row = 0, rows = 0, first_column = 0, columns = 0;
    std::string tier;
    int64_t bytes = 0, state_bytes = 0;
  };
  struct Start {
    std::string model, plan;
    int64_t ranks = 1;
    double time = 0;         // seconds since 1970
    int64_t first_step = 0;  // 0: none was made
    std::vector<TableShare> tables = {};
  };
  struct Step {
    int64_t step = 0;
    double loss = 0;  // not a number where the run had none
    double tokens_per_s = 0, step_time_s = 0;
    int64_t memory_bytes = 0, resident_bytes = 0;
    std::optional<double> eval_loss;
    std::optional<double> normalized_entropy, auc;  // beside it, of a model that predicts clicks
    std::optional<double> accuracy;                 // of one that predicts classes
  };
  // A cache of rows of a table, on all ranks.
  struct RowCache {
    std::string table, policy;
    int64_t rows = 0, slots = 0;
    double hit_rate = 0;  // of look-ups
    int64_t rows_in = 0, rows_out = 0, overflow_rows = 0;
  };
  std::vector<RowCache> row_caches;  // of the last run that came to its end
  std::vector<Start> starts;         // the second and later ones are restarts
  std::vector<Step> steps;           // each once, in order; of a step made again the later line
};

// Errors, one line with file:line: no JSON object, a key that is missing or of another type, no
// step at all. A part of a line at the end is passed over: somebody is writing it.
Result<RunRecord> parse_run_record(std::string_view text, const std::string& file);

// `width` and `height` of a drawing in characters, without its scale.
std::string draw(const RunRecord& record, int64_t width = 64, int64_t height = 10);

}  // namespace tessera
