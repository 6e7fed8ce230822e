// Makes one self-contained HTML page about one or several simulated (or recorded) steps, about the
// choices that a search tried (curve.h), or about both; or about a run of `tessera train`
// (run_record.h). For steps it says whether the plan fits the device, and shows the timeline, the
// memory, the communication matrix, the costs, and the plan next to the graph. The page needs no
// network, because it contains the plotting library (Apache ECharts), and has at most 2 MB.
// docs/reference/report.md describes it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/program/lower.h"
#include "tessera/program/rows/table_shares.h"
#include "tessera/report/curve.h"
#include "tessera/report/run_record.h"
#include "tessera/report/slow_rank.h"
#include "tessera/simulate/simulation.h"

namespace tessera {

// The bytes that ranks send each other in a step. If there are many ranks, the rows and columns are
// groups of ranks with the same stages instead.
struct CommunicationMatrix {
  struct Cell {
    int32_t from = 0, to = 0;  // index into labels
    int64_t bytes = 0;
  };
  std::vector<std::string> labels;
  std::vector<Cell> cells;  // without zeros, by (from, to)
  std::string note;         // says what a label is
};
// Returns the matrix of all ranks if there are at most `most_ranks`. Otherwise the ranks with the
// same stages form a group, one rank of each group is examined, and a cell has the bytes that this
// rank sends to all ranks of the other group together.
Result<CommunicationMatrix> communication_matrix(const Lowering& lowering, int64_t most_ranks = 32);

// The parts of the embedding tables that a rank keeps, and how much of them it reads.
struct TableLoad {
  int rank = 0;
  int64_t ranks = 1;               // number of ranks in this one's class, itself included
  std::vector<TableShare> shares;  // the parts that it keeps between steps
  int64_t rows_read = 0;           // in a step; a row counts as often as ids name it
  int64_t bytes_read = 0;          // bytes of rows_read
};
// Returns the load of every rank if there are at most `most_ranks`; otherwise the load of one rank
// of each class of equal ranks.
Result<std::vector<TableLoad>> table_loads(const Lowering& lowering,
                                           const std::vector<std::string>& tables,
                                           int64_t most_ranks = 256);

struct ReportRun {
  std::string name;       // the plan as the user wrote it
  std::string plan_text;  // TOML
  const Lowering* lowering = nullptr;
  Simulation simulation;
  // Embedding tables (program/rows/table_shares.h); empty if the page shall not show where they rest.
  std::vector<std::string> tables = {};
};
struct Report {
  std::string title;            // in a few words: "Llama, 32 layers, 8.03 B parameters on 8 A100"
  std::string subtitle;         // batch, precision, cluster and style
  std::string model = {};       // the whole text of the model, which the page shows on demand
  int64_t capacity_bytes = 0;   // memory of one device; 0: unknown
  std::vector<ReportRun> runs;  // at least one, unless `curve` or `record` is set
  std::optional<PlanCurve> curve;
  std::optional<RunRecord> record = {};   // what a run of `tessera train` wrote
  std::optional<WatchReport> watch = {};  // what its ranks did, with `record`
  std::string predicted_for = {};         // the machine of the predictions in `watch`
  // The most bytes of the data. With the plotting library a page has 1.2 MB more. Lists of the data
  // are shortened until they fit.
  int64_t most_data_bytes = 760'000;
};
// Returns the page's data as JSON.
Result<std::string> report_data(const Report& report);
// Returns the first sentence of the page: whether the plan fits the device, how many of several
// plans fit and which of those is the fastest, or what came of a run. Empty for a search alone.
std::string verdict_text(const Report& report);
// Returns the page. Returns an error if the program was built without the plotting library.
Result<std::string> to_html(const Report& report);

}  // namespace tessera
