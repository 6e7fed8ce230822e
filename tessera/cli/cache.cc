// tessera cache: replays a trace of look-ups through caches of rows.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "tessera/base/json_text.h"
#include "tessera/base/text.h"
#include "tessera/cli/cli.h"
#include "tessera/cli/output.h"
#include "tessera/data/click_file.h"
#include "tessera/sparse/cache/replay.h"

namespace tessera::cli {
namespace {

using sparse::CacheCounts;
using sparse::LookupTrace;

struct CacheJob {
  std::string trace;
  std::optional<int64_t> rows, row_bytes;
  std::vector<int64_t> slots;
  std::vector<std::string> policies = sparse::cache_policy_names();
  sparse::ReplayOptions how;
  int64_t batch = 1024;
  double counted = 1;
  bool read_only = false, json = false;
};

struct Row {
  std::string policy;
  int64_t slots;
  CacheCounts counts;
};

// Reads the look-ups of a file of clicks as a trace of one table: the rows of the file's tables are
// numbered one table after the other.
Result<LookupTrace> trace_of_clicks(const std::string& path, int64_t batch) {
  TESSERA_TRY(const ClickFile file, ClickFile::open(path));
  LookupTrace trace;
  std::vector<int64_t> ids;
  for (int64_t first = 0; first < file.samples(); first += batch) {
    ids.clear();
    for (int64_t sample = first; sample < std::min(first + batch, file.samples()); ++sample) {
      int64_t offset = 0;
      for (size_t f = 0; f < file.schema().features.size(); ++f) {
        for (const uint32_t id : file.bag(f, sample)) ids.push_back(offset + id);
        offset += file.schema().features[f].rows;
      }
    }
    trace.add(ids);
  }
  return trace;
}

Result<LookupTrace> open_trace(const CacheJob& job, int64_t& rows) {
  if (job.trace.starts_with("zipf:") || job.trace.starts_with("zipf(")) {
    TESSERA_TRY(const sparse::ZipfTrace what, sparse::parse_zipf_trace(job.trace));
    rows = what.rows;
    return sparse::make_trace(what);
  }
  if (job.trace.ends_with(".clicks")) {
    TESSERA_TRY(const ClickFile file, ClickFile::open(job.trace));
    rows = file.schema().rows();
    return trace_of_clicks(job.trace, job.batch);
  }
  TESSERA_TRY(LookupTrace trace, sparse::read_lookup_trace(job.trace));
  rows = trace.rows();
  return trace;
}

nlohmann::json row_json(const Row& row, const CacheJob& job) {
  const CacheCounts& counts = row.counts;
  nlohmann::json json = {{"policy", row.policy},
                         {"slots", row.slots},
                         {"batches", counts.batches},
                         {"lookups", counts.lookups},
                         {"lookup_misses", counts.lookup_misses},
                         {"hit_rate", counts.hit_rate()},
                         {"rows", counts.rows},
                         {"row_misses", counts.row_misses},
                         {"row_hit_rate", counts.row_hit_rate()},
                         {"rows_in", counts.rows_in},
                         {"rows_out", counts.rows_out},
                         {"rows_warmed", counts.rows_warmed},
                         {"overflow_rows", counts.overflow_rows}};
  if (job.row_bytes) {
    json["bytes_in"] = (counts.rows_in + counts.rows_warmed) * *job.row_bytes;
    json["bytes_out"] = counts.rows_out * *job.row_bytes;
  }
  return json;
}

std::string trace_text(const LookupTrace& trace, int64_t rows, const std::vector<Row>& found,
                       const CacheJob& job) {
  std::string text =
      fmt::format("{} {} of {} look-ups, a table of {} rows\n", grouped(trace.batches()),
                  trace.batches() == 1 ? "batch" : "batches", grouped(found.front().counts.lookups),
                  grouped(rows));
  std::vector<std::string> head = {"policy",  "slots",    "hit rate", "of rows",
                                   "rows in", "rows out", "overflow"};
  if (job.row_bytes) head.insert(head.end(), {"in a batch", "out a batch"});
  Table table(head);
  for (const Row& row : found) {
    const CacheCounts& counts = row.counts;
    std::vector<std::string> cells = {row.policy,
                                      grouped(row.slots),
                                      percent(counts.hit_rate(), 2),
                                      percent(counts.row_hit_rate(), 2),
                                      grouped(counts.rows_in),
                                      grouped(counts.rows_out),
                                      grouped(counts.overflow_rows)};
    if (job.row_bytes) {
      cells.push_back(short_bytes(counts.rows_in * *job.row_bytes / counts.batches));
      cells.push_back(short_bytes(counts.rows_out * *job.row_bytes / counts.batches));
    }
    table.add(cells);
  }
  return text + table.to_string();
}

Result<int> run_cache(const CacheJob& job) {
  for (const std::string& name : job.policies) TESSERA_TRY_VOID(sparse::cache_policy(name));
  int64_t rows = 0;
  TESSERA_TRY(const LookupTrace trace, open_trace(job, rows));
  if (job.rows && *job.rows < rows) {
    return invalid_input(
        fmt::format("cache: expected --rows of at least {}, as the trace has, "
                    "found {}",
                    rows, *job.rows));
  }
  rows = job.rows.value_or(rows);
  LookupTrace counted;  // the batches whose look-ups are counted for the policy
  const auto batches = static_cast<int64_t>(job.counted * static_cast<double>(trace.batches()));
  for (int64_t i = 0; i < batches; ++i) counted.add(trace.batch(i));
  const std::vector<int64_t> counts = counted.counts(rows);
  sparse::ReplayOptions how = job.how;
  how.changed = !job.read_only;
  std::vector<Row> found;
  for (const int64_t slots : job.slots) {
    for (const std::string& policy : job.policies) {
      TESSERA_TRY(
          const CacheCounts result,
          replay(trace, {.rows = rows, .slots = slots, .policy = policy, .counts = counts}, how));
      found.push_back({policy, slots, result});
    }
  }
  if (!job.json) return print(trace_text(trace, rows, found, job));
  nlohmann::json json = {{"rows", rows}, {"batches", trace.batches()}, {"caches", {}}};
  for (const Row& row : found) json["caches"].push_back(row_json(row, job));
  return print(dumped(json, 2) + "\n");
}

}  // namespace

void add_cache(Commands& commands) {
  const auto options = std::make_shared<CacheJob>();
  Command command =
      commands.add("cache", "Hit rates of caches of embedding rows on a trace of look-ups");
  command
      .option("TRACE", options->trace,
              "A file with the ids of a batch a line, a file of clicks (*.clicks), or "
              "'zipf:rows=N,exponent=1.05,batches=100,batch=1024,seed=1'")
      .required();
  command.option("--slots", options->slots, "Rows that the cache holds; several: 100,1000")
      .delimiter(',')
      .at_least(1)
      .required();
  command
      .option("--rows", options->rows,
              "Rows of the table (default: as the trace says, for a text the largest id + 1)")
      .at_least(1);
  command
      .option("--policy", options->policies,
              "dataset, lfu, lfu-forgetting, lru, lookahead, belady (default: all of them)")
      .delimiter(',')
      .default_text("");
  command
      .option(
          "--window", options->how.window,
          "Batches that `lookahead` knows of (default: as many as use four times as many rows as "
          "there are slots)")
      .at_least(0)
      .default_text("");
  command
      .option("--warm", options->how.warm,
              "Share of the slots that is filled before the first batch (default 0)")
      .at_least(0)
      .default_text("");
  command
      .option("--counted", options->counted,
              "Share of the trace from which the look-ups of each row are counted, for policies "
              "that start from counts (default 1)")
      .at_least(0)
      .default_text("");
  command.option("--batch", options->batch, "Of a file of clicks: samples a batch (default 1024)")
      .at_least(1)
      .default_text("");
  command
      .option("--row-bytes", options->row_bytes,
              "Bytes of a row with its optimizer state: the table then has bytes a batch")
      .at_least(1);
  command.flag("--read-only", options->read_only,
               "Batches change no row, as in an evaluation: nothing is written back");
  command.flag("--json", options->json, "Print JSON");
  command.footer(
      "docs/strategies/row-cache.md says what the policies are and what the columns count.\n\n"
      "Examples:\n"
      "  tessera cache trace.txt --slots 1000\n"
      "  tessera cache 'zipf:rows=1000000,exponent=1.05' --slots 10000 --policy "
      "dataset,lookahead,belady\n");
  command.action([options] { return run_cache(*options); });
}

}  // namespace tessera::cli
