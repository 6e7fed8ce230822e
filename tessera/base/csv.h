// Comma-separated values as RFC 4180 has them: fields in double quotes may hold commas, doubled
// quotes and line ends; lines end with LF or CRLF; a byte order mark is passed over. Of the readers
// that Debian has, the header-only one wants the columns when it is compiled and knows no line ends
// inside quotes, and the C one would be a dependency for sixty lines.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/result.h"

namespace tessera {

struct CsvTable {
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;  // each with as many fields as there are columns
  std::vector<int> lines;                      // of the file, where each row begins
  // Index of a column, -1 if there is none.
  int find(std::string_view column) const;
};

// Errors (file:line): no header, a name twice in it, a row with another number of fields, text
// after a closing quote, a quote that is not closed.
Result<CsvTable> parse_csv(std::string_view text, std::string_view file);

// One line with its line end; fields are quoted where they must be.
std::string csv_line(const std::vector<std::string>& fields);

}  // namespace tessera
