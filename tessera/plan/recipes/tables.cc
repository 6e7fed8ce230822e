// Embedding tables on many devices, dense layers data parallel (docs/theory/zionex-dlrm.md
// section 4): whole tables on one rank each, or their rows, their columns, or both cut; the first
// rows of each on every rank.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "tessera/graph/kinds.h"
#include "tessera/plan/look_ups.h"
#include "tessera/plan/recipes/families.h"
#include "tessera/plan/recipes/parts.h"

namespace tessera::recipes {
namespace {

// A `Spread` is a look-up whose table the plan spreads.
struct Spread {
  LookUp look_up;
  std::string ops;   // ops that read the rows that are spread
  int64_t rows = 0;  // number of these rows
  bool hot = false;  // whether the table's first rows lie on every rank, in a piece of their own
};

// Returns by table its place: the largest table first goes to the place with the least (LPT, Graham
// 1969).
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

// Returns an op that reads the table without looking up rows (a tied head); null if there is none.
const Op* other_reader(const Graph& graph, TensorId table) {
  for (const Op& op : graph.ops()) {
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      if (op.inputs[i] == table && !(looks_up_rows(op) && i == 1)) return &op;
    }
  }
  return nullptr;
}

// Cuts tables of more than `hot` rows into two (a loop over their rows): the first rows stay
// replicated, and the ops that read the others, step 1 of the loop, are spread.
Result<std::vector<Spread>> cut_hot_rows(PlanText& text, const Graph& graph, int64_t hot) {
  std::vector<Spread> out;
  std::map<std::pair<std::string, int64_t>, std::vector<std::string>> loops;  // by dim and its size
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
  // Samples are placed so that parts that a node has scattered over its ranks go to the same ranks
  // of other nodes.
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
    std::vector<OpId> whole;         // look-ups of tables that are spread as a whole
    std::vector<std::string> rests;  // ops that read the spread rows of the other tables
    bool has_batch = false;
  };
  std::map<std::pair<std::string, std::string>, Alike> alike;  // by names of dims
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
