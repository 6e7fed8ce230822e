// Reads and writes comma-separated values as RFC 4180 defines them: fields in double quotes may
// hold commas, doubled quotes and line ends; lines end with LF or CRLF; a byte order mark is passed
// over. Debian has two other readers: the header-only one needs the columns at compile time and
// does not support line ends inside quotes, and the C library would be a dependency for sixty
// lines.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/result.h"

namespace tessera {

struct CsvTable {
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;  // each row has one field per column
  std::vector<int> lines;                      // line of the file where each row begins
  // Returns the index of a column, -1 if there is none.
  int find(std::string_view column) const;
};

// Parses a text with a header. Returns an error (file:line) if there is no header, a name occurs
// twice in it, a row has another number of fields, text follows a closing quote, or a quote is not
// closed.
Result<CsvTable> parse_csv(std::string_view text, std::string_view file);

// Returns one line with its line end; fields are quoted where they must be.
std::string csv_line(const std::vector<std::string>& fields);

}  // namespace tessera
