// The recipe for embedding tables on many devices, with data parallel dense layers
// (docs/theory/zionex-dlrm.md section 4). Each table is on one rank as a whole, or its rows, its
// columns or both are cut. The first rows of each table may be on every rank.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "tessera/graph/kinds.h"
#include "tessera/plan/recipes/families.h"
#include "tessera/plan/recipes/parts.h"
#include "tessera/plan/resolve/look_ups.h"

namespace tessera::recipes {
namespace {

// A `Spread` is a look-up whose table the plan spreads.
struct Spread {
  LookUp look_up;
  std::string ops;   // pattern of the op that reads the rows that are spread
  int64_t rows = 0;  // number of rows that are spread
  bool hot = false;  // whether the first rows are apart, on every rank
};

// Returns for each table its place. The tables are placed in order of falling size, each at the
// place that has the fewest elements so far (LPT, Graham 1969).
std::vector<int64_t> balanced(const Graph& graph, const std::vector<Spread>& tables,
                              int64_t places) {
  std::vector<size_t> order(tables.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto elements = [&](size_t table) {
    return tables[table].rows * graph.tensor(tables[table].look_up.table).dims[1].size;
  };
  std::ranges::stable_sort(order, std::greater<>(), elements);
  std::vector<int64_t> load(static_cast<size_t>(places), 0), place(tables.size(), 0);
  for (const size_t table : order) {
    const auto least = std::ranges::min_element(load);
    *least += elements(table);
    place[table] = least - load.begin();
  }
  return place;
}

// Returns an op that reads the table but does not look up rows in it (a tied head); null if there
// is none.
const Op* other_reader(const Graph& graph, TensorId table) {
  for (const Op& op : graph.ops()) {
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      if (op.inputs[i] == table && !(looks_up_rows(op) && i == 1)) return &op;
    }
  }
  return nullptr;
}

// Adds a loop of two steps over the rows of each table with more than `hot` rows. The rows of step
// 0 stay on every rank; the rows of step 1 are spread. Returns what is to be spread. Errors: an op
// cannot be looped over its rows; another op also reads the table.
Result<std::vector<Spread>> cut_hot_rows(PlanText& text, const Graph& graph, int64_t hot) {
  std::vector<Spread> out;
  std::map<std::pair<std::string, int64_t>, std::vector<std::string>> loops;  // by (dim, size)
  for (LookUp& look_up : look_ups_of(graph)) {
    const int64_t rows = graph.tensor(look_up.table).dims[0].size;
    Spread one{look_up, look_up.ops, rows, hot > 0 && rows > hot};
    if (one.hot) {
      const Op& op = graph.op(look_up.op);
      if (const Status may = check_loopable(op, op.annotation.find(look_up.rows)); !may) {
        return invalid_input(fmt::format("hot = {}: dim '{}' of op '{}' ({}) {}", hot, look_up.rows,
                                         op.path, op.kind, may.error().message));
      }
      if (const Op* other = other_reader(graph, look_up.table); other != nullptr) {
        return invalid_input(
            fmt::format("hot = {}: expected tables that look-ups alone read, as their pieces rest "
                        "apart, found '{}', which op '{}' reads, too",
                        hot, graph.tensor(look_up.table).name, other->path));
      }
      loops[{look_up.rows, rows}].push_back(look_up.ops);
      one.ops += "#1";
      one.rows -= hot;
    }
    out.push_back(std::move(one));
  }
  for (const auto& [dim, ops] : loops) {
    text.loop(alternatives(ops), dim.first, fmt::format("sizes = [{}, {}]", hot, dim.second - hot));
  }
  return out;
}

Result<PlanText> emit_tables(const RecipeArguments& arguments, const Graph& graph) {
  TESSERA_TRY_VOID(check_zero(arguments));
  const int64_t nodes = arguments.number("nodes"), dp = arguments.number("dp");
  const std::string& by = arguments.text("by");
  // The order of these axes decides which samples a rank has. With dp as the outer axis, the parts
  // that a node has scattered over its ranks are needed by the ranks with the same numbers in
  // other nodes.
  const std::string all = "dp,nodes";
  PlanText text{.mesh = {{"nodes", nodes}, {"dp", dp}},
                .micro_batches = arguments.number("micro_batches")};
  TESSERA_TRY(const std::vector<Spread> tables, cut_hot_rows(text, graph, arguments.number("hot")));
  if (tables.empty()) {
    return invalid_input(
        "expected ops that look up rows of a table (as dlrm has, over a dim 'rows'), found none");
  }
  TESSERA_TRY_VOID(data_parallel(text, graph, all));
  const bool in_node = by == "table_row", one_rank = by == "table";
  const std::vector<int64_t> place = balanced(graph, tables, one_rank ? nodes * dp : nodes);
  struct Alike {
    std::vector<OpId> whole;         // look-ups of tables all of whose rows are spread
    std::vector<std::string> rests;  // patterns of the look-ups of the spread rows of other tables
    bool has_batch = false;
  };
  // For each pair of names of dims (rows, width): the look-ups of tables with these dims.
  std::map<std::pair<std::string, std::string>, Alike> alike;
  for (const Spread& table : tables) {
    Alike& same = alike[{table.look_up.rows, table.look_up.width}];
    if (table.hot) {
      same.rests.push_back(table.ops);
    } else {
      same.whole.push_back(table.look_up.op);
    }
    same.has_batch = same.has_batch || graph.op(table.look_up.op).annotation.find("batch") >= 0;
  }
  for (const auto& [dims, same] : alike) {
    if (one_rank || by == "replica") break;
    const auto& [rows, width] = dims;
    std::vector<std::string> patterns = same.rests;
    if (!same.whole.empty()) {
      const std::vector<std::string> whole = patterns_of(graph, same.whole);
      patterns.insert(patterns.end(), whole.begin(), whole.end());
    }
    const std::string ops = alternatives(patterns);
    if (same.has_batch) text.split(ops, "batch", "");
    if (by == "row") text.split(ops, rows, all);
    if (by == "column") text.split(ops, width, all);
    if (by == "grid") text.split(ops, width, "nodes");
    if (by == "grid" || in_node) text.split(ops, rows, "dp");
  }
  for (size_t t = 0; t < tables.size(); ++t) {
    if (in_node) text.pin(tables[t].ops, "nodes", place[t]);
    if (!one_rank) continue;
    text.pin(tables[t].ops, "nodes", place[t] / dp);
    text.pin(tables[t].ops, "dp", place[t] % dp);
  }
  zero(text, arguments.number("zero"), all);
  return text;
}

}  // namespace

std::vector<Recipe> table_recipes() {
  return {
      {"tables",
       "embedding tables over ranks: whole, by rows, by columns or both; the rest data parallel",
       {number("dp", std::nullopt, "ranks of a node"),
        choice("by", "table", {"table", "row", "column", "table_row", "grid", "replica"},
               "whole tables, largest first to the rank with the least; rows; columns; a table "
               "on a node and its rows on the ranks; columns over nodes and rows over ranks; "
               "every rank has all"),
        number("nodes", "1", "nodes of `dp` ranks"), micro_batches_argument("1"),
        number("zero", "0", "0 to 3: what of the rest is sharded over the ranks", 0),
        number("hot", "0",
               "rows at the beginning of each larger table that every rank has; the others are "
               "spread",
               0)},
       emit_tables}};
}

}  // namespace tessera::recipes
