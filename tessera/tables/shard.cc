#include "tessera/tables/shard.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "tessera/base/csv.h"
#include "tessera/base/one_line.h"
#include "tessera/base/text.h"
#include "tessera/tables/auto_search.h"
#include "tessera/tables/baselines.h"
#include "tessera/tables/neuroshard.h"
#include "tessera/tables/row_law.h"
#include "tessera/tables/torchrec_planner.h"

namespace tessera::tables {
namespace {

struct Planner {
  TablePlanner about;
  std::function<Answer(const Problem&, const ShardOptions&)> run;
};

Planner by_key(const std::string& name, const std::string& what, GreedyKey key) {
  return {{name, "largest first by " + what + ", each on the device with the least"},
          [key](const Problem& problem, const ShardOptions&) { return greedy(problem, key); }};
}

const std::vector<Planner>& planners() {
  static const std::vector<Planner> all = {
      {{"auto",
        "seeds, annealing and descent over moves, exchanges, cuts, joins, replicas and hot rows"},
       [](const Problem& problem, const ShardOptions& options) {
         AutoOptions own;
         own.seed = options.seed;
         own.budget = options.budget;
         own.progress = options.progress;
         return auto_search(problem, own);
       }},
      {{"neuroshard", "beam search over column splits around a greedy grid search"},
       [](const Problem& problem, const ShardOptions&) { return neuroshard(problem, {}); }},
      {{"torchrec", "enumerate, propose, partition and rate on TorchRec's estimator"},
       [](const Problem& problem, const ShardOptions&) { return torchrec_plan(problem); }},
      by_key("dim", "dim", GreedyKey::kDim),
      by_key("size", "bytes", GreedyKey::kSize),
      by_key("lookup", "dim x pooling factor", GreedyKey::kLookup),
      by_key("size-lookup", "dim x pooling factor x log10(rows)", GreedyKey::kSizeLookup),
      {{"random", "each table on a device drawn from those with room"},
       [](const Problem& problem, const ShardOptions& options) {
         return random_placement(problem, options.seed);
       }}};
  return all;
}

const std::vector<std::string>& placement_columns() {
  static const std::vector<std::string> columns = {"table", "kind",         "device", "first_row",
                                                   "rows",  "first_column", "columns"};
  return columns;
}

}  // namespace

const std::vector<TablePlanner>& table_planners() {
  static const std::vector<TablePlanner> all = [] {
    std::vector<TablePlanner> out;
    for (const Planner& planner : planners()) out.push_back(planner.about);
    return out;
  }();
  return all;
}

namespace {

// Prices an answer again with known frequencies of rows, because published planners take ids to be
// spread evenly over rows.
Answer priced(const Problem& problem, Answer answer) {
  const bool known = std::any_of(problem.tables.begin(), problem.tables.end(), knows_frequency);
  if (!known || !answer.found) return answer;
  return answer_with(problem, with_known_shares(problem, answer.placement), answer.searched,
                     answer.ended);
}

}  // namespace

Result<Answer> shard(const Problem& problem, const std::string& planner,
                     const ShardOptions& options) {
  TESSERA_TRY_VOID(problem.cost->check(problem.devices));
  std::vector<std::string> names;
  for (const Planner& known : planners()) {
    if (known.about.name == planner) return priced(problem, known.run(problem, options));
    names.push_back(known.about.name);
  }
  return invalid_input(
      fmt::format("planner of tables: expected one of {}, found '{}'", join(names, ", "), planner));
}

std::string placement_csv(const Problem& problem, const Placement& placement) {
  std::string out = csv_line(placement_columns());
  for (const PlacedPiece& placed : placement) {
    const Piece& piece = placed.piece;
    out += csv_line({problem.tables[piece.table].name, std::string(sharding_name(piece.kind)),
                     fmt::format("{}", placed.device), fmt::format("{}", piece.first_row),
                     fmt::format("{}", piece.rows), fmt::format("{}", piece.first_column),
                     fmt::format("{}", piece.columns)});
  }
  return out;
}

Result<Placement> read_placement(const Problem& problem, std::string_view text,
                                 std::string_view file) {
  TESSERA_TRY(const CsvTable csv, parse_csv(text, file));
  std::vector<std::string> missing;
  for (const std::string& column : placement_columns()) {
    if (csv.find(column) < 0) missing.push_back(column);
  }
  if (!missing.empty()) {
    return invalid_input(fmt::format("{}:1: expected the columns {}, found no {}", file,
                                     join(placement_columns(), ", "), join(missing, ", ")));
  }
  std::map<std::string, size_t> tables;
  for (size_t i = 0; i < problem.tables.size(); ++i) tables[problem.tables[i].name] = i;
  Placement out;
  for (size_t row = 0; row < csv.rows.size(); ++row) {
    const auto cell = [&](const std::string& column) {
      return csv.rows[row][static_cast<size_t>(csv.find(column))];
    };
    const auto error = [&](const std::string& column, const std::string& expected) {
      return invalid_input(fmt::format("{}:{}: {}: expected {}, found '{}'", file, csv.lines[row],
                                       column, expected, short_line(cell(column), 40)));
    };
    PlacedPiece placed;
    const auto table = tables.find(cell("table"));
    if (table == tables.end()) return error("table", "the name of a table");
    placed.piece.table = table->second;
    const auto kind = parse_sharding(cell("kind"));
    if (!kind) return error("kind", "one of " + join(sharding_names(), ", "));
    placed.piece.kind = *kind;
    const Table& of = problem.tables[table->second];
    int64_t device = 0;
    struct Number {
      std::string column;
      int64_t* value;
      int64_t least, most;
    };
    for (const Number& number : {Number{"device", &device, 0, problem.devices - 1},
                                 Number{"first_row", &placed.piece.first_row, 0, of.rows - 1},
                                 Number{"rows", &placed.piece.rows, 1, of.rows},
                                 Number{"first_column", &placed.piece.first_column, 0, of.dim - 1},
                                 Number{"columns", &placed.piece.columns, 1, of.dim}}) {
      const auto value = parse_int(cell(number.column));
      if (!value || *value < number.least || *value > number.most) {
        return error(number.column,
                     fmt::format("a whole number from {} to {}", number.least, number.most));
      }
      *number.value = *value;
    }
    placed.device = static_cast<int>(device);
    placed.piece.share = share_of_piece(of, placed.piece, problem.devices);
    out.push_back(placed);
  }
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace tessera::tables
