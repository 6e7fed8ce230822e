#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "tessera/plan/recipes/families.h"
#include "tessera/plan/recipes/parts.h"

namespace tessera::recipes {
namespace {

// The axes that cut the rows of ops, as a plan text says it. A selector takes the ops whose paths
// begin with its own too ("q" takes "q.a"), so short paths come first, and longer ones say what
// differs.
class Rows {
 public:
  Rows(PlanText& text, const Graph& graph, std::string everywhere)
      : text_(text), graph_(graph), everywhere_(std::move(everywhere)) {
    text_.split("*", "batch", everywhere_);
  }

  // `product`: of the ops of blocks with the dims `features` and hidden; `between`: of those with
  // `features` alone.
  void cut(const std::string& features, const std::string& product, const std::string& between) {
    std::map<std::string, std::string> wanted;  // by name in a block
    std::map<std::ptrdiff_t, std::vector<std::string>> by_depth;
    for (const Op& op : graph_.ops()) {
      if (op.phase != Phase::kForward || !op.path.starts_with("blocks.")) continue;
      const std::string name = name_in_block(op.path);
      const bool has = op.annotation.find(features) >= 0;
      const std::string& over = !has                                ? now(name)
                                : op.annotation.find("hidden") >= 0 ? product
                                                                    : between;
      if (!wanted.emplace(name, over).second) continue;
      by_depth[std::count(name.begin(), name.end(), '.')].push_back(name);
    }
    for (const auto& [depth, names] : by_depth) {
      for (const std::string& over : {product, between, everywhere_}) {
        std::vector<std::string> others;
        for (const std::string& name : names) {
          if (wanted[name] == over && now(name) != over) others.push_back(name);
        }
        if (others.empty()) continue;
        text_.split("blocks.*." + by_scope(others), "batch", over);
        for (const std::string& name : others) said_[name] = over;
      }
    }
  }

 private:
  // The axes over which the entries so far split the op: those of its longest prefix that has any.
  const std::string& now(const std::string& name) const {
    for (size_t end = name.size(); end != std::string::npos; end = name.rfind('.', end - 1)) {
      const auto found = said_.find(name.substr(0, end));
      if (found != said_.end()) return found->second;
      if (end == 0) break;
    }
    return everywhere_;
  }

  PlanText& text_;
  const Graph& graph_;
  std::string everywhere_;
  std::map<std::string, std::string> said_;  // by name in a block
};

// docs/theory/tensor-parallel-3d.md sections 2-4, its axes i, j, l being x, y, z. Of each product x
// cuts the rows, y and z its features, in turn as inputs and as outputs: what one product makes is
// what the next one reads. Between products the rows are also cut over the axis that does not cut
// the features, and weights rest over x: gathered for a product, scattered after it.
Result<PlanText> emit_3d(const RecipeArguments& arguments, const Graph& graph) {
  const int64_t y = arguments.number("y");
  TESSERA_TRY(PlanText text,
              outer(arguments, graph,
                    {{"z", arguments.number("z")}, {"y", y}, {"x", arguments.number("x")}}));
  for (const char* dim : {"batch", "hidden"}) {
    if (!has_dim(graph, "*", dim))
      return invalid_input(fmt::format("expected ops with the dim '{}', found none", dim));
  }
  Rows rows(text, graph, "dp,x,y");
  text.split("*", "hidden", "z");
  const auto features = [&](const std::string& inner, const std::string& over) {
    rows.cut(over, "dp,x", "dp,x,z");
    text.split(inner, over, "y");
  };
  if (has_dim(graph, "blocks.*.attn", "heads")) {
    TESSERA_TRY(const std::string heads, heads_dim(graph, "y", y));
    features("blocks.*.attn", "heads");
    if (heads != "heads") text.splits.back()[1].second = "\"" + heads + "\"";
  }
  if (has_dim(graph, "blocks.*.mlp", "ffn")) features("blocks.*.mlp", "ffn");
  std::vector<std::string> with_vocab = ops_outside(graph, "vocab,hidden");
  if (!with_vocab.empty()) {
    text.split(alternatives(with_vocab), "batch", "dp,x");
    text.split("loss", "batch", "dp,x,z");
    with_vocab.emplace_back("loss");
    text.split(alternatives(with_vocab), "vocab", "y");
  }
  text.store("role:parameter", "x");
  zero(text, arguments.number("zero"));
  return text;
}

}  // namespace

std::vector<Recipe> tensor_parallel_3d_recipes() {
  return {{"tensor_parallel_3d",
           "rows, inputs and outputs of each product over three axes; everything is stored once",
           with_outer({number("x", std::nullopt, "cuts the rows: batch"),
                       number("y", std::nullopt, "cuts heads, ffn and vocab"),
                       number("z", std::nullopt, "cuts hidden")}),
           emit_3d}};
}

}  // namespace tessera::recipes
