// Makes one self-contained HTML page about one or several simulated (or recorded) steps: timeline,
// memory, communication matrix, costs, the plan beside the graph; or about the choices that a
// search saw (curve.h); or about both. The page needs no network, since the plotting library
// (Apache ECharts) is part of it. Its contents: docs/reference/report.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/program/lower.h"
#include "tessera/program/table_shares.h"
#include "tessera/report/curve.h"
#include "tessera/simulate/simulation.h"

namespace tessera {

// The bytes that ranks (or, of many ranks, classes of equal ranks) send each other in a step.
struct CommunicationMatrix {
  struct Cell {
    int32_t from = 0, to = 0;  // index into labels
    int64_t bytes = 0;
  };
  std::vector<std::string> labels;
  std::vector<Cell> cells;  // without zeros, by (from, to)
  std::string note;         // what a label stands for
};
// Returns the exact matrix up to `most_ranks` ranks. Beyond, one rank of each class is examined,
// and a cell holds the bytes that it sends to all ranks of the other class.
Result<CommunicationMatrix> communication_matrix(const Lowering& lowering, int64_t most_ranks = 32);

// The load that embedding tables put on a rank.
struct TableLoad {
  int rank = 0;
  int64_t ranks = 1;               // the number of ranks that are equal to this one
  std::vector<TableShare> shares;  // the shares that it keeps between steps
  int64_t rows_read = 0;           // in a step, a row as often as ids name it
  int64_t bytes_read = 0;          // of these rows
};
// Returns the load of every rank, up to `most_ranks` ranks; beyond, of one rank of each class of
// equal ranks.
Result<std::vector<TableLoad>> table_loads(const Lowering& lowering,
                                           const std::vector<std::string>& tables,
                                           int64_t most_ranks = 256);

struct ReportRun {
  std::string name;       // the plan as the user wrote it
  std::string plan_text;  // TOML
  const Lowering* lowering = nullptr;
  Simulation simulation;
  std::vector<std::string> tables = {};  // embedding tables (program/table_shares.h)
};
struct Report {
  std::string title, subtitle;  // model; batch, cluster and style
  int64_t capacity_bytes = 0;   // of one device; 0: unknown
  std::vector<ReportRun> runs;  // at least one, unless there is a curve
  std::optional<PlanCurve> curve;
  int64_t most_events = 60'000;  // instructions kept a run; beyond, only runs of blocks are kept
};
// Returns the page's data as JSON.
Result<std::string> report_data(const Report& report);
// Returns the page. Fails if the program was built without the plotting library.
Result<std::string> to_html(const Report& report);

}  // namespace tessera
