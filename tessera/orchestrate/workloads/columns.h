// Reads the columns of a CSV file for readers of workloads. Errors are one line: file, line, what was
// expected, what was found.
//
//   TESSERA_TRY(Columns file, Columns::read(path, {"name", "time"}));
//   for (size_t row = 0; row < file.rows(); ++row) {
//     TESSERA_TRY(const double time, file.number(row, "time", 0));
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/csv.h"
#include "tessera/base/result.h"

namespace tessera::share {

// The largest number that a workload may hold: seconds of thirty billion years.
inline constexpr double kMostNumber = 1e18;

// Reads a file of a workload, without the mark of the byte order with which some editors begin it.
Result<std::string> read_workload_text(const std::string& path);

class Columns {
 public:
  // Reads a file, which must have these columns; further ones are allowed.
  static Result<Columns> read(const std::string& path, const std::vector<std::string>& columns);
  // Takes a table that was read already, such as one of other separators.
  static Result<Columns> of(CsvTable table, const std::string& path,
                            const std::vector<std::string>& columns);

  size_t rows() const { return table_.rows.size(); }
  bool has(std::string_view column) const { return table_.find(column) >= 0; }
  const std::string& text(size_t row, std::string_view column) const;
  // Reads a number from `least` to kMostNumber.
  Result<double> number(size_t row, std::string_view column, double least = -kMostNumber) const;
  Result<int64_t> whole(size_t row, std::string_view column, int64_t least) const;
  // Returns the digits of a text such as "233", each at least 1. Numbers above 9 stand between plus
  // signs: "16+16".
  Result<std::vector<int>> digits(size_t row, std::string_view column) const;
  std::string where(size_t row, std::string_view column) const;  // "file:3: time"

 private:
  std::string path_;
  CsvTable table_;
};

}  // namespace tessera::share
