#include "tessera/base/csv.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace tessera {
namespace {

// Reads the records of a CSV text one after the other.
class Reader {
 public:
  Reader(std::string_view text, std::string_view file) : text_(text), file_(file) {
    if (text_.starts_with("\xEF\xBB\xBF")) text_.remove_prefix(3);
  }
  bool done() const { return at_ >= text_.size(); }
  int line() const { return line_; }

  Result<std::vector<std::string>> record() {
    std::vector<std::string> fields;
    while (true) {
      fields.emplace_back();
      if (!done() && text_[at_] == '"') {
        TESSERA_TRY_VOID(quoted(fields.back()));
      } else {
        while (!done() && !ends_field()) fields.back() += text_[at_++];
      }
      if (done()) return fields;
      if (text_[at_] == ',') {
        ++at_;
        continue;
      }
      if (!ends_field()) {
        return error("expected a comma or the end of the line after a closing quote");
      }
      if (text_[at_] == '\r') ++at_;
      if (!done() && text_[at_] == '\n') ++at_;
      ++line_;
      return fields;
    }
  }

  tl::unexpected<Error> error(std::string_view message) const {
    return invalid_input(fmt::format("{}:{}: {}", file_, line_, message));
  }

 private:
  bool ends_field() const {
    const char c = text_[at_];
    return c == ',' || c == '\n' || (c == '\r' && text_.substr(at_).starts_with("\r\n"));
  }

  Status quoted(std::string& field) {
    const int first = line_;
    ++at_;
    while (!done()) {
      const char c = text_[at_++];
      if (c == '\n') ++line_;
      if (c != '"') {
        field += c;
      } else if (!done() && text_[at_] == '"') {
        field += text_[at_++];
      } else {
        return {};
      }
    }
    return invalid_input(fmt::format("{}:{}: a quote is opened and not closed", file_, first));
  }

  std::string_view text_, file_;
  size_t at_ = 0;
  int line_ = 1;
};

}  // namespace

int CsvTable::find(std::string_view column) const {
  const auto it = std::find(columns.begin(), columns.end(), column);
  return it == columns.end() ? -1 : static_cast<int>(it - columns.begin());
}

Result<CsvTable> parse_csv(std::string_view text, std::string_view file) {
  Reader reader(text, file);
  if (reader.done()) return reader.error("expected a header with the names of columns, found none");
  CsvTable table;
  TESSERA_TRY(table.columns, reader.record());
  std::set<std::string> names;
  for (const std::string& column : table.columns) {
    if (!names.insert(column).second) {
      return invalid_input(fmt::format("{}:1: the column '{}' is there twice", file, column));
    }
  }
  while (!reader.done()) {
    const int line = reader.line();
    TESSERA_TRY(std::vector<std::string> fields, reader.record());
    if (fields.size() == 1 && fields[0].empty()) continue;  // an empty line
    if (fields.size() != table.columns.size()) {
      return invalid_input(fmt::format("{}:{}: expected {} fields as in the header, found {}", file,
                                       line, table.columns.size(), fields.size()));
    }
    table.rows.push_back(std::move(fields));
    table.lines.push_back(line);
  }
  return table;
}

std::string csv_line(const std::vector<std::string>& fields) {
  std::string out;
  for (size_t i = 0; i < fields.size(); ++i) {
    if (i > 0) out += ',';
    if (fields[i].find_first_of(",\"\r\n") == std::string::npos) {
      out += fields[i];
      continue;
    }
    out += '"';
    for (const char c : fields[i]) out += c == '"' ? std::string("\"\"") : std::string(1, c);
    out += '"';
  }
  return out + "\n";
}

}  // namespace tessera
