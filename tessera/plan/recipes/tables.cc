// Embedding tables on many devices, dense layers data parallel (docs/theory/zionex-dlrm.md
// section 4): whole tables on one rank each, or their rows, their columns, or both cut.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "tessera/plan/look_ups.h"
#include "tessera/plan/recipes/families.h"
#include "tessera/plan/recipes/parts.h"

namespace tessera::recipes {
namespace {

// By table: the place of each, the largest first to the place with the least (LPT, Graham 1969).
std::vector<int64_t> balanced(const Graph& graph, const std::vector<LookUp>& tables,
                              int64_t places) {
  std::vector<size_t> order(tables.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto elements = [&](size_t table) { return graph.tensor(tables[table].table).elements(); };
  std::ranges::stable_sort(order, std::greater<>(), elements);
  std::vector<int64_t> load(static_cast<size_t>(places), 0), place(tables.size(), 0);
  for (const size_t table : order) {
    const auto least = std::ranges::min_element(load);
    *least += elements(table);
    place[table] = least - load.begin();
  }
  return place;
}

Result<PlanText> emit_tables(const RecipeArguments& arguments, const Graph& graph) {
  TESSERA_TRY_VOID(check_zero(arguments));
  const int64_t nodes = arguments.number("nodes"), dp = arguments.number("dp");
  const std::string& by = arguments.text("by");
  // Samples lie so that what a node has scattered over its ranks goes to the same ranks of others.
  const std::string all = "dp,nodes";
  PlanText text{.mesh = {{"nodes", nodes}, {"dp", dp}},
                .micro_batches = arguments.number("micro_batches")};
  const std::vector<LookUp> tables = look_ups_of(graph);
  if (tables.empty()) {
    return invalid_input(
        "expected ops that look up rows of a table (as dlrm has, over a dim 'rows'), found none");
  }
  TESSERA_TRY_VOID(data_parallel(text, graph, all));
  const bool in_node = by == "table_row", one_rank = by == "table";
  const std::vector<int64_t> place = balanced(graph, tables, one_rank ? nodes * dp : nodes);
  std::map<std::pair<std::string, std::string>, std::vector<OpId>> alike;  // by names of dims
  for (const LookUp& table : tables) alike[{table.rows, table.width}].push_back(table.op);
  for (const auto& [dims, ids] : alike) {
    if (one_rank || by == "replica") break;
    const auto& [rows, width] = dims;
    const std::string ops = alternatives(patterns_of(graph, ids));
    const auto has_batch = [&](OpId op) { return graph.op(op).annotation.find("batch") >= 0; };
    if (std::ranges::any_of(ids, has_batch)) text.split(ops, "batch", "");
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
        number("zero", "0", "0 to 3: what of the rest is sharded over the ranks", 0)},
       emit_tables}};
}

}  // namespace tessera::recipes
