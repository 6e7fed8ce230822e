// Describes embedding tables for the planners of tables: sizes, and statistics of the ids that are
// looked up, but no values. A CSV file describes one table in each line (docs/reference/tables.md):
//
//   name,rows,dim,pooling_factor
//   user_id,40000000,128,1
//   history,39060,64,31.5
//
//   TESSERA_TRY(const std::vector<Table> tables, read_tables(text, "tables.csv"));
//
// The cost model says how many samples a batch has. Each sample looks up a bag of ids in a table,
// `pooling_factor` ids on average. The rows of a bag are summed to one vector of `dim` numbers.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/result.h"

namespace tessera::tables {

// Number of bins of the reuse histogram. A bin is a share of the distinct rows that occur in a
// batch: of the rows that occur c times, with c = 1 in bin 0, c in (2^(j-1), 2^j] in bin j for j =
// 1 .. 15, and c > 2^15 in bin 16 (docs/strategies/planning-tables.md section 7).
inline constexpr size_t kReuseBins = 17;

struct Table {
  std::string name;
  int64_t rows = 1;
  int64_t dim = 4;
  double pooling_factor = 1;  // mean number of ids of a bag
  int64_t element_bytes = 4;  // bytes of one number of the table
  double bags = 1;            // number of bags of a sample
  bool weighted = false;      // whether each id comes with a weight
  double misses = 0;          // cache misses per batch and device (for TorchRec's prefetch)
  std::array<double, kReuseBins> reuse{};  // histogram of reuse; all zero: not known
  // If one of these is set, rows are in the order of their frequency (row_law.h). zipf: the
  // frequency falls by Zipf's law with this exponent; 0: not set. ordered: it falls as
  // `reuse` says.
  double zipf = 0;
  bool ordered = false;
  // Kinds and kernels that TorchRec's planner may use; empty: all.
  std::vector<std::string> kinds, kernels;

  int64_t bytes() const { return rows * dim * element_bytes; }
  friend bool operator==(const Table&, const Table&) = default;
};

// Reads tables. Errors, one line each: what csv.h refuses, all missing columns, an unknown column
// (with the nearest known name), no table, a cell out of range (file:line: column), a name that
// occurs twice.
Result<std::vector<Table>> read_tables(std::string_view csv, std::string_view file);
// Writes what read_tables reads. Columns that hold the default in all tables are left out.
std::string to_csv(const std::vector<Table>& tables);

// Options of random tasks like those with which publications compare planners
// (docs/strategies/planning-tables.md section 12). A task has 10 to 59 tables. Dims are drawn
// uniformly from max_dim, max_dim / 2, ... down to 4. Rows, pooling factors and reuse are drawn
// with the moments of the public pool of 856 tables. Tasks of more than `most_bytes` are drawn
// again. Equal seeds give equal tables on every machine.
struct TaskOptions {
  uint64_t seed = 1;
  int64_t max_dim = 128;
  int64_t least_tables = 10, most_tables = 59;
  int64_t most_bytes = int64_t{15} << 30;
};
std::vector<Table> generate_tables(const TaskOptions& options);
// Generates tables from a text such as "random:max_dim=64,seed=7,tables=20,most_bytes=15 GiB". All
// keys are optional.
Result<std::vector<Table>> generate_tables(std::string_view spec);

}  // namespace tessera::tables
