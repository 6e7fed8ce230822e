#include "tessera/orchestrate/workloads/columns.h"

#include <fmt/format.h>

#include "tessera/base/text.h"

namespace tessera::share {
namespace {

constexpr int64_t kMostGpusANode = 1024;

}  // namespace

Result<std::string> read_workload_text(const std::string& path) {
  TESSERA_TRY(std::string text, read_file(path));
  if (text.starts_with("\xEF\xBB\xBF")) text.erase(0, 3);
  return text;
}

Result<Columns> Columns::of(CsvTable table, const std::string& path,
                            const std::vector<std::string>& columns) {
  std::vector<std::string> missing;
  for (const std::string& column : columns) {
    if (table.find(column) < 0) missing.push_back(column);
  }
  if (!missing.empty()) {
    return invalid_input(fmt::format("{}:1: expected the columns {}, found no {}", path,
                                     join(columns, ", "), join(missing, ", ")));
  }
  Columns out;
  out.path_ = path;
  out.table_ = std::move(table);
  return out;
}

Result<Columns> Columns::read(const std::string& path, const std::vector<std::string>& columns) {
  TESSERA_TRY(const std::string text, read_workload_text(path));
  TESSERA_TRY(CsvTable table, parse_csv(text, path));
  return of(std::move(table), path, columns);
}

const std::string& Columns::text(size_t row, std::string_view column) const {
  return table_.rows[row][static_cast<size_t>(table_.find(column))];
}

std::string Columns::where(size_t row, std::string_view column) const {
  return fmt::format("{}:{}: {}", path_, table_.lines[row], column);
}

Result<double> Columns::number(size_t row, std::string_view column, double least) const {
  const std::string& found = text(row, column);
  const auto value = parse_double(trim(found));
  if (value && *value >= least && *value <= kMostNumber) return *value;
  const bool is_large = value && *value > kMostNumber;
  return invalid_input(fmt::format("{}: expected a number{}, found '{}'", where(row, column),
                                   is_large ? fmt::format(" of at most {:g}", kMostNumber)
                                   : least > -kMostNumber ? fmt::format(" of at least {}", least)
                                                          : "",
                                   found));
}

Result<int64_t> Columns::whole(size_t row, std::string_view column, int64_t least) const {
  const std::string& found = text(row, column);
  const auto value = parse_int(trim(found));
  if (value && *value >= least) return *value;
  return invalid_input(fmt::format("{}: expected a whole number of at least {}, found '{}'",
                                   where(row, column), least, found));
}

Result<std::vector<int>> Columns::digits(size_t row, std::string_view column) const {
  const std::string& found = text(row, column);
  std::vector<int> out;
  const bool has_signs = found.find('+') != std::string::npos;
  std::vector<std::string> numbers;
  if (has_signs) {
    numbers = split_text(found, '+');
  } else {
    for (const char c : found) numbers.emplace_back(1, c);
  }
  for (const std::string& number : numbers) {
    const auto value = parse_int(number);
    if (!value || *value < 1 || *value > kMostGpusANode) {
      out.clear();
      break;
    }
    out.push_back(static_cast<int>(*value));
  }
  if (!out.empty() && out.size() <= 64) return out;
  return invalid_input(fmt::format("{}: expected a digit from 1 to 9 for each node, found '{}'",
                                   where(row, column), found));
}

}  // namespace tessera::share
