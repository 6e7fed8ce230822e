// The record of a run: `metrics.jsonl` in the run's folder, one JSON object a line.
//
//   {"start": {"time": 1764000000.1, "model": "gpt:…", "plan": "serial", "ranks": 1, …}}
//   {"step": 1, "loss": 5.54, "learning_rate": 0.0003, "step_time_s": 0.02, "tokens_per_s": 6400,
//    "memory_bytes": 1048576, "resident_bytes": 90000000}
//   {"step": 50, …, "eval_loss": 4.9}
//   {"step": 50, …, "eval_loss": 0.5, "eval_normalized_entropy": 0.8, "eval_auc": 0.76}
//   {"saved": {"step": 50, "path": "checkpoints/step-000000000050", "bytes": 4096, "waited_s": 0.01,
//              "seconds": 0.2}}
//   {"row_caches": [{"table": "tables.0.weight", "policy": "lookahead", "rows": 1000, "slots": 100,
//                    "row_bytes": 68, "hit_rate": 0.9, "lookups": 5120, "rows_in": 512,
//                    "rows_out": 410, "overflow_rows": 0}]}
//
// A run that is started again in the same folder appends another start and then its steps. These
// may repeat steps that the earlier run had made after its last checkpoint. If two lines have the
// same step, the later line counts.
//
// Each line is written by one appending call, so a reader never sees a part of a line while the
// writer lives. If the writer was killed during a call or the disk was full, the file may end in a
// part of a line. Readers skip this part, and the next writer that opens the file cuts it off.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/runtime/session.h"

namespace tessera {

inline constexpr std::string_view kMetricsFile = "metrics.jsonl";

// Returns an event between two steps as an object of JSON on one line. The record and `train
// --json` have the same text.
std::string event_text(const SaveReport& report);
std::string event_text(const LoadReport& report);
std::string event_text(const ChangeReport& report);
// Returns the event at the end of a run.
std::string event_text(const std::vector<TableCacheSummary>& caches);

class MetricsWriter {
 public:
  // Opens the record, or another file of lines like it; makes the folder if need be. Errors (invalid
  // input): the folder cannot be made, the file cannot be written.
  static Result<MetricsWriter> open(const std::string& folder,
                                    std::string_view file = kMetricsFile);
  ~MetricsWriter();
  MetricsWriter(MetricsWriter&& other) noexcept;
  MetricsWriter& operator=(MetricsWriter&& other) noexcept;
  MetricsWriter(const MetricsWriter&) = delete;
  MetricsWriter& operator=(const MetricsWriter&) = delete;

  // Writes the start of a run. Errors of this function and of the next two: a fault, for example a
  // full disk.
  Status start(const TrainingStart& start);
  Status step(const StepReport& report);
  Status event(const std::string& text);  // a line: an object of JSON

 private:
  MetricsWriter(int descriptor, std::string path)
      : descriptor_(descriptor), path_(std::move(path)) {}
  Status append(std::string line);

  int descriptor_ = -1;
  std::string path_;
};

}  // namespace tessera
