// Reads and writes comma-separated values as RFC 4180 defines them: fields in double quotes may
// hold commas, doubled quotes and line ends; lines end with LF or CRLF; a byte order mark is
// skipped. Debian has two libraries that read CSV, which are not used. The header-only one needs
// the columns at compile time and does not support line ends inside quotes; the C library would be
// a new dependency that saves sixty lines.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/result.h"

namespace tessera {

struct CsvTable {
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;  // each row has one field per column
  std::vector<int> lines;                      // for each row: the line of the file where it begins
  // Returns the index of the column of this name, or -1 if there is none.
  int find(std::string_view column) const;
};

// Parses a text with a header. Returns an error (file:line) if there is no header, the header has a
// name twice, a row does not have as many fields as the header, text follows a closing quote, or a
// quote is not closed.
Result<CsvTable> parse_csv(std::string_view text, std::string_view file);

// Returns the fields as one line with its line end. Fields that need quotes get them.
std::string csv_line(const std::vector<std::string>& fields);

}  // namespace tessera
