// Embedding tables as the planner of tables sees them: sizes and statistics of the ids that arrive,
// no values. A CSV describes them, one table a line (docs/reference/tables.md):
//
//   name,rows,dim,pooling_factor
//   user_id,40000000,128,1
//   history,39060,64,31.5
//
//   TESSERA_TRY(const std::vector<Table> tables, read_tables(text, "tables.csv"));
//
// A batch has `batch` samples (the cost model says how many). Each sample gives a table a bag of
// `pooling_factor` ids in the mean, whose rows are summed to one vector of `dim` numbers.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/result.h"

namespace tessera::tables {

// Number of bins of the reuse histogram. A bin holds the share of the distinct rows of a batch that
// occur c times, with c = 1, c in (2^(j-1), 2^j] for j = 1 .. 15, and c > 2^15
// (docs/strategies/planning-tables.md section 7).
inline constexpr size_t kReuseBins = 17;

struct Table {
  std::string name;
  int64_t rows = 1;
  int64_t dim = 4;
  double pooling_factor = 1;  // mean number of ids of a bag
  int64_t element_bytes = 4;  // of a number of the table
  double bags = 1;            // of a sample
  bool weighted = false;      // each id comes with a weight
  double misses = 0;          // misses of the cache per batch and device (TorchRec's prefetch)
  std::array<double, kReuseBins> reuse{};  // all zero: not known
  // Rows stand in the order of their frequency (row_law.h), which falls by Zipf's law with this
  // exponent (0: not known), or as `reuse` says.
  double zipf = 0;
  bool ordered = false;
  std::vector<std::string> kinds, kernels;  // that TorchRec's planner may use; empty: all

  int64_t bytes() const { return rows * dim * element_bytes; }
  friend bool operator==(const Table&, const Table&) = default;
};

// Reads tables. Errors, one line each: what csv.h refuses, all missing columns, an unknown column
// with the nearest known one, no table, a cell that is out of range (file:line: column), a name
// twice.
Result<std::vector<Table>> read_tables(std::string_view csv, std::string_view file);
// Writes what read_tables reads. Columns that hold the default in all tables are left out.
std::string to_csv(const std::vector<Table>& tables);

// Random tasks as publications compare planners on (docs/strategies/planning-tables.md section 12):
// 10 to 59 tables, dims uniform from max_dim, max_dim / 2, ... down to 4, and rows, pooling factors
// and reuse drawn to the moments of the public pool of 856 tables. A draw of more than `most_bytes`
// is thrown away. Equal seeds give equal tables everywhere.
struct TaskOptions {
  uint64_t seed = 1;
  int64_t max_dim = 128;
  int64_t least_tables = 10, most_tables = 59;
  int64_t most_bytes = int64_t{15} << 30;
};
std::vector<Table> generate_tables(const TaskOptions& options);
// Generates tables from "random:max_dim=64,seed=7,tables=20,most_bytes=15 GiB"; all keys are
// optional.
Result<std::vector<Table>> generate_tables(std::string_view spec);

}  // namespace tessera::tables
