// Reads the record of a training run, draws it as text, and describes it for the page (report.h).
// The runtime writes the record into the file `metrics.jsonl` of the run's folder
// (docs/reference/run-config.md, section "The record of a run"). Text and page show, over the
// steps, the loss of training and of evaluations, the throughput and the memory, and mark restarts.
// For a model with embedding tables, they also show in which tier they are and which parts each
// rank keeps.
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
  // The part of an embedding table that a rank keeps between steps.
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
    int64_t first_step = 0;  // first step of this start; 0: it made none
    std::vector<TableShare> tables = {};
    int64_t parameters = 0;  // of the model; 0: the record does not say
  };
  struct Step {
    int64_t step = 0;
    double loss = 0;  // not a number if the run had no loss
    double tokens_per_s = 0, step_time_s = 0;
    int64_t memory_bytes = 0, resident_bytes = 0;
    std::optional<double> eval_loss;
    std::optional<double> normalized_entropy, auc;  // if the model predicts clicks
    std::optional<double> accuracy;                 // if the model predicts classes
  };
  // A cache of rows of a table. The numbers are those of all ranks together.
  struct RowCache {
    std::string table, policy;
    int64_t rows = 0, slots = 0;
    double hit_rate = 0;  // share of the look-ups that found their row in the cache
    int64_t rows_in = 0, rows_out = 0, overflow_rows = 0;
  };
  std::vector<RowCache> row_caches;  // at the end of the last run that ended
  std::vector<Start> starts;         // the first, then one for each restart
  std::vector<Step> steps;           // by step; for a step that was repeated, only the last time
};

// Parses a record. Errors, one line with file:line: a line is not a JSON object; a key is missing
// or has another type; there is no step. An incomplete last line is skipped, because it is still
// being written.
Result<RunRecord> parse_run_record(std::string_view text, const std::string& file);

// Draws a record as text. Each drawing is `width` x `height` characters large, not counting its
// scale.
std::string draw(const RunRecord& record, int64_t width = 64, int64_t height = 10);

// Returns what came of the run, in one sentence without a full stop: "Loss 5.55 to 2.31 in 1,200
// steps, 2 restarts".
std::string record_verdict(const RunRecord& record);

}  // namespace tessera
