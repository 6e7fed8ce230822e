// tessera shard: places embedding tables on devices.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "tessera/base/json_text.h"
#include "tessera/base/text.h"
#include "tessera/base/units.h"
#include "tessera/cli/cli.h"
#include "tessera/cli/output.h"
#include "tessera/cli/progress_line.h"
#include "tessera/cli/with_planning/commands.h"
#include "tessera/tables/shard.h"

namespace tessera::cli {
namespace {

using Json = nlohmann::ordered_json;
using tables::Answer;
using tables::Problem;

struct ShardOptions {
  std::string tables, memory, cost = "closed", planner = "auto", optimizer = "sgd", placement, out;
  std::string write_tables;
  std::vector<std::string> splits = {"columns", "rows", "replicas", "hot"};
  int devices = 1;
  uint64_t seed = 1;
  int64_t budget = tables::ShardOptions().budget;
  bool compare = false, json = false, beyond_range = false;
};

Result<std::vector<tables::Table>> read_tables(const std::string& from) {
  if (from.starts_with("random:") || from == "random") return tables::generate_tables(from);
  TESSERA_TRY(const std::string text, read_file(from));
  return tables::read_tables(text, from);
}

std::string ms_text(double ms) { return fmt::format("{:.4g} ms", ms); }

int64_t columns_on(const Answer& answer, int device) {
  int64_t columns = 0;
  for (const auto& [piece, on] : answer.placement) {
    if (on == device && piece.kind != tables::Sharding::kReplicated) columns += piece.columns;
  }
  return columns;
}

size_t pieces_on(const Answer& answer, int device) {
  return static_cast<size_t>(
      std::count_if(answer.placement.begin(), answer.placement.end(),
                    [&](const tables::PlacedPiece& placed) { return placed.device == device; }));
}

std::string device_table(const Answer& answer) {
  Table table({"device", "pieces", "columns", "memory", "compute", "backward", "forward", "sum"});
  for (size_t i = 0; i < answer.evaluation.devices.size(); ++i) {
    const tables::DeviceCost& cost = answer.evaluation.devices[i];
    const auto device = static_cast<int>(i);
    table.add({fmt::format("{}", i), fmt::format("{}", pieces_on(answer, device)),
               grouped(columns_on(answer, device)), short_bytes(answer.evaluation.bytes[i]),
               ms_text(cost.compute_ms), ms_text(cost.backward_ms), ms_text(cost.forward_ms),
               ms_text(cost.total())});
  }
  return table.to_string();
}

std::string kind_text(const tables::Table& table, const std::vector<tables::PlacedPiece>& pieces) {
  const auto rest = std::find_if(pieces.begin(), pieces.end(), [](const auto& placed) {
    return placed.piece.kind != tables::Sharding::kReplicated;
  });
  if (rest == pieces.end()) return std::string(tables::sharding_name(pieces.front().piece.kind));
  const tables::Piece& piece = rest->piece;
  const bool hot = pieces.size() > 1 && pieces.front().piece.kind == tables::Sharding::kReplicated;
  const bool all =
      hot && piece.rows + pieces.front().piece.rows == table.rows && piece.columns == table.dim;
  return all ? "hot rows"
             : fmt::format("{}{}", hot ? "hot rows, " : "", tables::sharding_name(piece.kind));
}

// Returns, for each table that is cut, which device has which piece: "grid: rows 0-99 x columns
// 0-31 on 2; ...".
std::string cut_text(const Problem& problem, const Answer& answer) {
  std::map<size_t, std::vector<tables::PlacedPiece>> cut;
  for (const tables::PlacedPiece& placed : answer.placement) {
    if (placed.piece.kind != tables::Sharding::kTable) cut[placed.piece.table].push_back(placed);
  }
  std::string out;
  for (const auto& [table, pieces] : cut) {
    const tables::Table& of = problem.tables[table];
    std::vector<std::string> parts;
    for (const auto& [piece, device] : pieces) {
      if (piece.kind == tables::Sharding::kReplicated) {
        std::string on = "on every device";
        if (piece.rows < of.rows) on = fmt::format("rows 0-{} {}", piece.rows - 1, on);
        if (parts.empty() || parts.front() != on) parts.insert(parts.begin(), on);
        continue;
      }
      std::string part;
      if (piece.rows < of.rows) {
        part += fmt::format("rows {}-{} ", piece.first_row, piece.first_row + piece.rows - 1);
      }
      if (piece.columns < of.dim) {
        part += fmt::format("columns {}-{} ", piece.first_column,
                            piece.first_column + piece.columns - 1);
      }
      parts.push_back(fmt::format("{}on {}", part, device));
    }
    out += fmt::format("  {} ({} x {}), {}: {}\n", of.name, of.rows, of.dim, kind_text(of, pieces),
                       join(parts, ", "));
  }
  return out.empty() ? out : "\ntables that are shared\n" + out;
}

std::string gap_text(const Answer& answer) {
  if (answer.bound_ms <= 0) return "no bound is known for this cost model and these splits";
  return fmt::format("no placement is faster than {}, gap {}", ms_text(answer.bound_ms),
                     percent(answer.evaluation.ms / answer.bound_ms - 1));
}

// Returns a text that says for how many devices the cost model was used outside its range; empty if
// for none.
std::string range_text(const Problem& problem, const Answer& answer) {
  const int devices = tables::devices_beyond_range(problem, answer.placement);
  if (devices == 0) return "";
  const auto range = problem.cost->range_of_columns();
  return fmt::format(
      "range     {} of {} devices have fewer or more columns than the networks know ({:.0f} to "
      "{:.0f}): their cost is a guess\n",
      devices, problem.devices, range->first, range->second);
}

std::string answer_text(const Problem& problem, const std::string& planner, const Answer& answer) {
  int64_t bytes = 0;
  for (const int64_t on : answer.evaluation.bytes) bytes += on;
  return fmt::format(
      "tables    {}, {} on {} of {}\nplanner   {}: {}, {}\ncost      {} a step by {}\n"
      "bound     {}\n{}\n{}{}",
      problem.tables.size(), short_bytes(bytes), plural(problem.devices, "device"),
      short_bytes(problem.memory_bytes), planner, plural(answer.searched, "placement") + " priced",
      answer.ended, ms_text(answer.evaluation.ms), problem.cost->name(), gap_text(answer),
      range_text(problem, answer), device_table(answer), cut_text(problem, answer));
}

Json sharding_json(const Problem& problem, const std::string& planner, const Answer& answer) {
  Json out = {{"planner", planner},
              {"cost", problem.cost->name()},
              {"tables", problem.tables.size()},
              {"devices", problem.devices},
              {"memory_bytes", problem.memory_bytes},
              {"found", answer.found},
              {"searched", answer.searched},
              {"ended", answer.ended}};
  if (!answer.found) {
    out["reason"] = answer.reason;
    return out;
  }
  out["ms"] = answer.evaluation.ms;
  out["bound_ms"] = answer.bound_ms;
  out["gap"] = answer.bound_ms > 0 ? Json(answer.evaluation.ms / answer.bound_ms - 1) : Json();
  if (problem.cost->range_of_columns())
    out["devices_beyond_range"] = tables::devices_beyond_range(problem, answer.placement);
  out["load"] = Json::array();
  for (size_t i = 0; i < answer.evaluation.devices.size(); ++i) {
    const tables::DeviceCost& cost = answer.evaluation.devices[i];
    const auto device = static_cast<int>(i);
    out["load"].push_back({{"device", i},
                           {"pieces", pieces_on(answer, device)},
                           {"columns", columns_on(answer, device)},
                           {"bytes", answer.evaluation.bytes[i]},
                           {"compute_ms", cost.compute_ms},
                           {"backward_ms", cost.backward_ms},
                           {"forward_ms", cost.forward_ms}});
  }
  out["placement"] = Json::array();
  for (const auto& [piece, device] : answer.placement) {
    out["placement"].push_back({{"table", problem.tables[piece.table].name},
                                {"kind", tables::sharding_name(piece.kind)},
                                {"kernel", tables::kernel_name(piece.kernel)},
                                {"device", device},
                                {"first_row", piece.first_row},
                                {"rows", piece.rows},
                                {"first_column", piece.first_column},
                                {"columns", piece.columns}});
  }
  return out;
}

tables::Splits read_splits(const std::vector<std::string>& names) {
  const auto named = [&](const char* name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  return {.columns = named("columns"),
          .rows = named("rows"),
          .replicas = named("replicas"),
          .hot = named("hot")};
}

Result<Problem> read_problem(const ShardOptions& options, const tables::CostModel& cost) {
  constexpr int kMostDevices = 1024;
  if (options.devices > kMostDevices) {
    return invalid_input(
        fmt::format("--devices: expected at most {}, found {}", kMostDevices, options.devices));
  }
  Problem problem;
  TESSERA_TRY(problem.tables, read_tables(options.tables));
  problem.devices = options.devices;
  const auto bytes = parse_quantity(options.memory, Quantity::kBytes);
  if (!bytes) return invalid_input("--memory: " + bytes.error().message);
  if (!(*bytes >= 1 && *bytes <= 1e15)) {
    return invalid_input(
        fmt::format("--memory: expected a size from 1 B to 1000 TB, found '{}'", options.memory));
  }
  problem.memory_bytes = static_cast<int64_t>(*bytes);
  problem.cost = &cost;
  problem.optimizer = *tables::parse_optimizer(options.optimizer);
  problem.splits = read_splits(options.splits);
  problem.beyond_range = options.beyond_range;
  TESSERA_TRY_VOID(cost.check(problem.devices));
  return problem;
}

// Asks every planner the same question and prices all answers by the same cost model.
Result<int> compare(const Problem& problem, const ShardOptions& options) {
  Table table({"planner", "step", "of the bound", "largest memory", "placements"});
  Json list = Json::array();
  ProgressLine line("shard");
  for (const tables::TablePlanner& planner : tables::table_planners()) {
    line.say(planner.name);
    TESSERA_TRY(const Answer answer,
                tables::shard(problem, planner.name, {options.seed, options.budget, {}}));
    Json json = sharding_json(problem, planner.name, answer);
    json.erase("placement");
    list.push_back(std::move(json));
    if (!answer.found) {
      table.add({planner.name, "does not fit", "-", "-", grouped(answer.searched)});
      continue;
    }
    const auto& bytes = answer.evaluation.bytes;
    table.add(
        {planner.name, ms_text(answer.evaluation.ms),
         answer.bound_ms > 0 ? fmt::format("{:.3f}", answer.evaluation.ms / answer.bound_ms) : "-",
         short_bytes(*std::max_element(bytes.begin(), bytes.end())), grouped(answer.searched)});
  }
  return print(options.json ? dumped(Json{{"planners", std::move(list)}}) + "\n"
                            : table.to_string());
}

Result<Answer> find(const Problem& problem, const ShardOptions& options) {
  if (!options.placement.empty()) {
    TESSERA_TRY(const std::string text, read_file(options.placement));
    TESSERA_TRY(tables::Placement placement,
                tables::read_placement(problem, text, options.placement));
    return tables::answer_with(problem, std::move(placement), 1, "read from " + options.placement);
  }
  ProgressLine line("shard");
  return tables::shard(
      problem, options.planner,
      {options.seed, options.budget, [&](const std::string& what) { line.say(what); }});
}

Result<int> run_shard(const ShardOptions& options) {
  TESSERA_TRY(const auto cost, tables::load_cost_model(options.cost));
  TESSERA_TRY(const Problem problem, read_problem(options, *cost));
  if (!options.write_tables.empty()) {
    TESSERA_TRY_VOID(write_file(options.write_tables, tables::to_csv(problem.tables)));
  }
  if (options.compare) return compare(problem, options);
  TESSERA_TRY(const Answer answer, find(problem, options));
  const std::string planner = options.placement.empty() ? options.planner : "by hand";
  if (options.json) {
    const int code = print(dumped(sharding_json(problem, planner, answer)) + "\n");
    if (code != 0 || !answer.found) return code != 0 ? code : 1;
  }
  if (!answer.found)
    return check_failed(fmt::format("shard: {}: does not fit: {}", planner, answer.reason));
  if (!options.out.empty()) {
    TESSERA_TRY_VOID(write_file(options.out, tables::placement_csv(problem, answer.placement)));
  }
  return options.json ? 0 : print(answer_text(problem, planner, answer));
}

}  // namespace

void add_shard(Commands& commands) {
  const auto options = std::make_shared<ShardOptions>();
  Command command = commands.add("shard", "Place embedding tables on devices");
  command
      .option("TABLES.csv", options->tables,
              "Tables (docs/reference/tables.md), or random:max_dim=64,seed=7")
      .required();
  command.option("--devices", options->devices, "How many devices").required().at_least(1);
  command.option("--memory", options->memory, "Of each device, as '4 GiB'").required();
  command.option("--cost", options->cost,
                 "Cost model: closed, torchrec, or a JSON file (docs/reference/tables.md)");
  std::vector<std::string> names;
  std::string summaries;
  for (const tables::TablePlanner& planner : tables::table_planners()) {
    names.push_back(planner.name);
    summaries += fmt::format("  {:<12} {}\n", planner.name, planner.summary);
  }
  command.option("--planner", options->planner, "Who searches: " + join(names, ", ")).one_of(names);
  command
      .option("--splits", options->splits,
              "What auto may do to a table, of columns,rows,replicas,hot, or none")
      .delimiter(',')
      .one_of({"columns", "rows", "replicas", "hot", "none"});
  command.flag("--beyond-range", options->beyond_range,
               "auto may make pieces for which cost networks were not trained");
  command.option("--optimizer", options->optimizer, "Whose state lies beside the tables")
      .one_of(tables::optimizer_names());
  command.option("--seed", options->seed, "Of auto and random").at_least(0);
  command
      .option("--budget", options->budget,
              "Placements that auto prices, for each set of kinds of splits")
      .at_least(1);
  command.option("--placement", options->placement, "Price this placement instead of searching");
  command.option("--out", options->out, "Write the placement as CSV");
  command.option("--write-tables", options->write_tables, "Write the tables as CSV");
  command.flag("--compare", options->compare, "All planners on this question, a line each");
  command.flag("--json", options->json, "Print JSON");
  command.footer("Planners:\n" + summaries +
                 "\nExamples:\n"
                 "  tessera shard tables.csv --devices 8 --memory '32 GiB' --cost torchrec\n"
                 "  tessera shard random:max_dim=64,seed=7 --devices 4 --memory '4 GiB' --compare\n"
                 "Exit code 1: the tables do not fit.\n");
  command.action([options] { return run_shard(*options); });
}

}  // namespace tessera::cli
