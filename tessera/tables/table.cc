#include "tessera/tables/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "tessera/base/csv.h"
#include "tessera/base/one_line.h"
#include "tessera/base/philox.h"
#include "tessera/base/text.h"
#include "tessera/base/units.h"
#include "tessera/tables/sharding.h"

namespace tessera::tables {
namespace {

constexpr int64_t kMostRows = int64_t{1} << 40;
constexpr int64_t kMostDim = int64_t{1} << 16;
constexpr double kMostIds = 1e9;

// Reads a cell into a table. The error is the text of what was expected.
using Cell = std::function<Status(Table&, const std::string&)>;

Cell whole(int64_t Table::*member, int64_t least, int64_t most) {
  return [=](Table& table, const std::string& text) -> Status {
    const auto value = parse_int(text);
    if (!value || *value < least || *value > most) {
      return invalid_input(fmt::format("a whole number from {} to {}", least, most));
    }
    table.*member = *value;
    return {};
  };
}

Status read_real(const std::string& text, double most, double& value) {
  const auto found = parse_double(text);
  if (!found || !(*found >= 0 && *found <= most)) {
    return invalid_input(fmt::format("a number from 0 to {}", most));
  }
  value = *found;
  return {};
}

Cell real(double Table::*member, double most) {
  return
      [=](Table& table, const std::string& text) { return read_real(text, most, table.*member); };
}

Cell flag(bool Table::*member) {
  return [=](Table& table, const std::string& text) -> Status {
    if (text != "0" && text != "1") return invalid_input("0 or 1");
    table.*member = text == "1";
    return {};
  };
}

// Returns a reader of words that are separated by blanks; `known` lists the allowed words.
Cell words(std::vector<std::string> Table::*member, const std::vector<std::string>& known) {
  return [=](Table& table, const std::string& text) -> Status {
    for (const std::string& word : split_text(text, ' ')) {
      if (word.empty()) continue;
      if (std::find(known.begin(), known.end(), word) == known.end()) {
        return invalid_input(fmt::format("words of {}", join(known, ", ")));
      }
      (table.*member).push_back(word);
    }
    return {};
  };
}

struct Column {
  std::string name;
  bool required = false;
  Cell read;
};

const std::vector<Column>& columns() {
  static const std::vector<Column> all = [] {
    std::vector<Column> out;
    out.push_back({"name", true, [](Table& table, const std::string& text) -> Status {
                     // Names are printed in messages and tables without further checks, so control
                     // characters are refused.
                     if (text.empty() || text.size() > 200 || one_line(text) != text) {
                       return invalid_input("a name of 1 to 200 printable characters");
                     }
                     table.name = text;
                     return {};
                   }});
    out.push_back({"rows", true, whole(&Table::rows, 1, kMostRows)});
    out.push_back({"dim", true, whole(&Table::dim, 1, kMostDim)});
    out.push_back({"pooling_factor", true, real(&Table::pooling_factor, kMostIds)});
    out.push_back({"element_bytes", false, whole(&Table::element_bytes, 1, 8)});
    out.push_back({"bags", false, real(&Table::bags, kMostIds)});
    out.push_back({"weighted", false, flag(&Table::weighted)});
    out.push_back({"misses", false, real(&Table::misses, 1e15)});
    out.push_back({"zipf", false, real(&Table::zipf, 10)});
    out.push_back({"ordered", false, flag(&Table::ordered)});
    out.push_back({"kinds", false, words(&Table::kinds, sharding_names())});
    out.push_back({"kernels", false, words(&Table::kernels, kernel_names())});
    for (size_t bin = 0; bin < kReuseBins; ++bin) {
      out.push_back(
          {fmt::format("bin_{}", bin), false, [bin](Table& table, const std::string& text) {
             return read_real(text, 1, table.reuse[bin]);
           }});
    }
    return out;
  }();
  return all;
}

Status check_columns(const CsvTable& csv, std::string_view file) {
  std::vector<std::string> missing, known;
  for (const Column& column : columns()) {
    known.push_back(column.name);
    if (column.required && csv.find(column.name) < 0) missing.push_back(column.name);
  }
  if (!missing.empty()) {
    return invalid_input(fmt::format("{}:1: expected the columns {}, found no {}", file,
                                     "name, rows, dim, pooling_factor", join(missing, ", ")));
  }
  for (const std::string& column : csv.columns) {
    if (std::find(known.begin(), known.end(), column) != known.end()) continue;
    return invalid_input(fmt::format("{}:1: unknown column '{}', did you mean '{}'?", file,
                                     short_line(column, 40), nearest(column, known)));
  }
  return {};
}

// Draws the numbers of one task, one after the other.
class TableDraws {
 public:
  explicit TableDraws(uint64_t seed, uint64_t stream) : philox_{seed, stream} {}
  double uniform() { return philox_.uniform(next_++); }
  double normal() { return philox_.normal(2 * next_++); }
  int64_t whole(int64_t least, int64_t most) {
    return least + static_cast<int64_t>(uniform() * static_cast<double>(most - least + 1));
  }
  // Draws from a log-normal distribution with this mean and deviation.
  double log_normal(double mean, double deviation) {
    const double variance = std::log1p(deviation * deviation / (mean * mean));
    return std::exp(std::log(mean) - variance / 2 + std::sqrt(variance) * normal());
  }

 private:
  Philox philox_;
  uint64_t next_ = 0;
};

// Means of bin_0 .. bin_16 over the public pool (docs/strategies/planning-tables.md section 7).
constexpr std::array<double, kReuseBins> kPoolReuse = {.225, .104, .126, .106, .082, .056,
                                                       .039, .033, .031, .027, .027, .022,
                                                       .019, .015, .006, .008, .033};

Table draw_table(TableDraws& draws, size_t index, int64_t max_dim) {
  Table table;
  table.name = fmt::format("t{}", index);
  int64_t dims = 1;
  while (max_dim >> dims >= 4) ++dims;
  table.dim = max_dim >> draws.whole(0, dims - 1);
  table.rows = std::max<int64_t>(100, std::llround(draws.log_normal(4.107e6, 3.135e6)));
  table.pooling_factor = draws.log_normal(15.81, 25.59);
  double sum = 0;
  for (size_t bin = 0; bin < kReuseBins; ++bin) {
    table.reuse[bin] = kPoolReuse[bin] * -std::log1p(-draws.uniform());
    sum += table.reuse[bin];
  }
  for (double& share : table.reuse) share /= sum;
  return table;
}

}  // namespace

Result<std::vector<Table>> read_tables(std::string_view text, std::string_view file) {
  TESSERA_TRY(const CsvTable csv, parse_csv(text, file));
  TESSERA_TRY_VOID(check_columns(csv, file));
  if (csv.rows.empty()) {
    return invalid_input(
        fmt::format("{}:1: expected a table a line below the header, found none", file));
  }
  std::vector<Table> out;
  std::set<std::string> names;
  for (size_t row = 0; row < csv.rows.size(); ++row) {
    Table table;
    for (const Column& column : columns()) {
      const int at = csv.find(column.name);
      if (at < 0) continue;
      const std::string cell(trim(csv.rows[row][static_cast<size_t>(at)]));
      if (cell.empty() && !column.required) continue;
      if (const Status read = column.read(table, cell); !read) {
        return invalid_input(fmt::format("{}:{}: {}: expected {}, found '{}'", file, csv.lines[row],
                                         column.name, read.error().message, short_line(cell, 40)));
      }
    }
    if (table.rows > kMostRows / table.dim) {
      return invalid_input(
          fmt::format("{}:{}: expected at most 2^40 numbers in a table, found {} "
                      "rows of {}",
                      file, csv.lines[row], table.rows, table.dim));
    }
    const bool has_reuse =
        std::any_of(table.reuse.begin(), table.reuse.end(), [](double share) { return share > 0; });
    if (table.ordered && table.zipf == 0 && !has_reuse) {
      return invalid_input(
          fmt::format("{}:{}: ordered: expected how often the rows of table '{}' are looked up "
                      "(bin_0 .. bin_16, or zipf), found neither",
                      file, csv.lines[row], short_line(table.name, 40)));
    }
    if (!names.insert(table.name).second) {
      return invalid_input(fmt::format("{}:{}: the table '{}' is there twice", file, csv.lines[row],
                                       short_line(table.name, 40)));
    }
    out.push_back(std::move(table));
  }
  return out;
}

std::string to_csv(const std::vector<Table>& tables) {
  using Print = std::function<std::string(const Table&)>;
  std::vector<std::pair<std::string, Print>> prints = {
      {"name", [](const Table& table) { return table.name; }},
      {"rows", [](const Table& table) { return fmt::format("{}", table.rows); }},
      {"dim", [](const Table& table) { return fmt::format("{}", table.dim); }},
      {"pooling_factor",
       [](const Table& table) { return fmt::format("{}", table.pooling_factor); }},
      {"element_bytes", [](const Table& table) { return fmt::format("{}", table.element_bytes); }},
      {"bags", [](const Table& table) { return fmt::format("{}", table.bags); }},
      {"weighted", [](const Table& table) { return std::string(table.weighted ? "1" : "0"); }},
      {"misses", [](const Table& table) { return fmt::format("{}", table.misses); }},
      {"zipf", [](const Table& table) { return fmt::format("{}", table.zipf); }},
      {"ordered", [](const Table& table) { return std::string(table.ordered ? "1" : "0"); }},
      {"kinds", [](const Table& table) { return join(table.kinds, " "); }},
      {"kernels", [](const Table& table) { return join(table.kernels, " "); }}};
  for (size_t bin = 0; bin < kReuseBins; ++bin) {
    prints.emplace_back(fmt::format("bin_{}", bin),
                        [bin](const Table& table) { return fmt::format("{}", table.reuse[bin]); });
  }
  const Table standard;
  std::erase_if(prints, [&, at = 0](const auto& print) mutable {
    return at++ >= 4 && std::all_of(tables.begin(), tables.end(), [&](const Table& table) {
             return print.second(table) == print.second(standard);
           });
  });
  std::vector<std::string> fields;
  for (const auto& [name, print] : prints) fields.push_back(name);
  std::string out = csv_line(fields);
  for (const Table& table : tables) {
    fields.clear();
    for (const auto& [name, print] : prints) fields.push_back(print(table));
    out += csv_line(fields);
  }
  return out;
}

std::vector<Table> generate_tables(const TaskOptions& options) {
  for (uint64_t attempt = 0;; ++attempt) {
    TableDraws draws(options.seed, attempt);
    const int64_t count = draws.whole(options.least_tables, options.most_tables);
    std::vector<Table> tables;
    int64_t bytes = 0;
    for (int64_t i = 0; i < count; ++i) {
      tables.push_back(draw_table(draws, tables.size(), options.max_dim));
      bytes += tables.back().bytes();
    }
    if (bytes <= options.most_bytes) return tables;
  }
}

Result<std::vector<Table>> generate_tables(std::string_view spec) {
  TESSERA_TRY(const Call call, parse_call(spec));
  if (call.name != "random") {
    return invalid_input(fmt::format("expected random:KEY=VALUE,..., found '{}'", spec));
  }
  TaskOptions options;
  for (const auto& [key, value] : call.arguments) {
    const auto expected = [&, key = key, value = value](std::string_view what) {
      return invalid_input(fmt::format("{}: {}: expected {}, found '{}'", spec, key, what, value));
    };
    if (key == "most_bytes") {
      // The limit is at least the bytes of ten tables of the smallest dim, because below that every
      // task would be drawn again for ever.
      constexpr double kLeast = 4e9;
      const auto bytes = parse_quantity(value, Quantity::kBytes);
      if (!bytes || !(*bytes >= kLeast && *bytes <= 1e15)) {
        return expected("a size from 4 GB to 1000 TB, as '15 GiB'");
      }
      options.most_bytes = static_cast<int64_t>(*bytes);
      continue;
    }
    const auto number = parse_int(value);
    if (key == "seed") {
      if (!number || *number < 0) return expected("a whole number of at least 0");
      options.seed = static_cast<uint64_t>(*number);
    } else if (key == "max_dim") {
      const bool power =
          number && *number >= 4 && *number <= 1024 && (*number & (*number - 1)) == 0;
      if (!power) return expected("a power of two from 4 to 1024");
      options.max_dim = *number;
    } else if (key == "tables") {
      if (!number || *number < 1 || *number > 10000)
        return expected("a whole number from 1 to 10000");
      options.least_tables = options.most_tables = *number;
    } else {
      return invalid_input(fmt::format("{}: unknown key '{}', did you mean '{}'?", spec, key,
                                       nearest(key, {"seed", "max_dim", "tables", "most_bytes"})));
    }
  }
  // Refuses limits below half of the mean bytes of a task, because drawing would take too long.
  const double mean_dim = static_cast<double>(options.max_dim) / 2;
  if (static_cast<double>(options.least_tables) * 4.107e6 * 4 * mean_dim / 2 >
      static_cast<double>(options.most_bytes)) {
    return invalid_input(
        fmt::format("{}: expected most_bytes of a size that so many tables have room in, found {}",
                    spec, format_bytes(options.most_bytes)));
  }
  return generate_tables(options);
}

}  // namespace tessera::tables
