#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "tessera/plan/recipes/families.h"
#include "tessera/plan/recipes/parts.h"

namespace tessera::recipes {
namespace {

// `Rows` writes the split entries for the rows (the dim `batch`) of each op. A selector with the
// path "q" also selects the op "q.a". So entries with short paths are written first, and entries
// with longer paths then override them where another split is wanted.
class Rows {
 public:
  Rows(PlanText& text, const Graph& graph, std::string everywhere)
      : text_(text),
        blocks_(graph),
        everywhere_(std::move(everywhere)),
        said_(graph.ops().size(), everywhere_) {
    text_.split("*", "batch", everywhere_);
  }

  // Writes the splits of the ops of blocks that have the dim `features`. Ops that also have the dim
  // hidden get the axes `product`, the others get the axes `between`.
  void cut(const std::string& features, const std::string& product, const std::string& between) {
    const std::vector<std::string> wanted = wanted_axes(features, product, between);
    std::map<std::ptrdiff_t, std::vector<OpId>> by_depth;
    for (const Op& op : blocks_.graph.ops()) {
      if (blocks_.holds(op) && op.annotation.find("batch") >= 0)
        by_depth[std::count(op.path.begin(), op.path.end(), '.')].push_back(op.id);
    }
    for (const auto& [depth, ops] : by_depth) {
      for (const std::string& over : {product, between, everywhere_}) {
        std::vector<OpId> others;
        std::copy_if(ops.begin(), ops.end(), std::back_inserter(others), [&](OpId op) {
          return wanted[op.index()] == over && said_[op.index()] != over;
        });
        if (!others.empty()) say(pattern_in_blocks(blocks_, others, "batch"), over);
      }
    }
  }

 private:
  // Returns by op the axes that should cut its rows. An op without the dim `features` keeps
  // its axes.
  std::vector<std::string> wanted_axes(const std::string& features, const std::string& product,
                                       const std::string& between) const {
    std::vector<std::string> wanted = said_;
    for (const Op& op : blocks_.graph.ops()) {
      if (!blocks_.holds(op) || op.annotation.find(features) < 0) continue;
      wanted[op.id.index()] = op.annotation.find("hidden") >= 0 ? product : between;
    }
    return wanted;
  }

  void say(const std::string& pattern, const std::string& over) {
    text_.split(pattern, "batch", over);
    for (const OpId op : selected(blocks_.graph, pattern)) said_[op.index()] = over;
  }

  PlanText& text_;
  const Blocked blocks_;
  const std::string everywhere_;
  std::vector<std::string> said_;  // by op: the axes of the last entry written that selects it
};

// Returns the axes x, y and z in order of rising traffic, because the last axis of a mesh has
// neighbouring ranks. In forward and backward pass together, a layer with T tokens and hidden size
// h sends, summed over ranks, (y-1) 6 T h elements over y, (z-1) 17 T h over z, and (x-1) times
// twice its weights over x (docs/strategies/tensor-parallel-3d.md section 3).
Axes by_traffic(const Graph& graph, int64_t x, int64_t y, int64_t z) {
  const Blocked blocks(graph);
  double values = 0;   // T h: elements of the largest tensor with the dim hidden that a block makes
  double weights = 0;  // elements of the weights of all blocks
  std::set<TensorId> counted;
  for (const Op& op : graph.ops()) {
    if (!blocks.holds(op)) continue;
    const auto has_hidden = [&](TensorId id) {
      const auto& dims = graph.tensor(id).dims;
      return std::any_of(dims.begin(), dims.end(),
                         [](const Dim& dim) { return dim.name == "hidden"; });
    };
    for (const TensorId id : op.outputs) {
      if (has_hidden(id))
        values = std::max(values, static_cast<double>(graph.tensor(id).elements()));
    }
    for (const TensorId id : op.inputs) {
      if (graph.tensor(id).role != Role::kParameter || !has_hidden(id)) continue;
      if (counted.insert(id).second) weights += static_cast<double>(graph.tensor(id).elements());
    }
  }
  const int64_t last = *std::max_element(blocks.block.begin(), blocks.block.end());
  const auto layers = static_cast<double>(std::max<int64_t>(0, last) + 1);
  struct Sent {
    std::string axis;
    int64_t ranks;
    double elements;
  };
  std::vector<Sent> sent = {{"y", y, static_cast<double>(y - 1) * 6 * values},
                            {"x", x, static_cast<double>(x - 1) * 2 * weights / layers},
                            {"z", z, static_cast<double>(z - 1) * 17 * values}};
  std::stable_sort(sent.begin(), sent.end(),
                   [](const Sent& a, const Sent& b) { return a.elements < b.elements; });
  Axes out;
  for (const Sent& one : sent) out.emplace_back(one.axis, one.ranks);
  return out;
}

// Emits the scheme of docs/strategies/tensor-parallel-3d.md section 2; its axes i, j, l are x, y, z
// here. In each product x cuts the rows, one of y and z cuts the input features, and the other cuts
// the output features. These two swap their roles from product to product, so that each product
// makes its output in the layout in which the next product reads it. In ops between products, the
// axis of y and z that does not cut the features also cuts the rows. Weights at rest are cut over
// x. They are gathered for a product, and their gradients are scattered after it.
Result<PlanText> emit_3d(const RecipeArguments& arguments, const Graph& graph) {
  const int64_t y = arguments.number("y");
  TESSERA_TRY(
      PlanText text,
      outer(arguments, graph, by_traffic(graph, arguments.number("x"), y, arguments.number("z"))));
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
  if (const std::string attention = scope_with(graph, "attn", "heads"); !attention.empty()) {
    TESSERA_TRY(const std::string heads, heads_dim(graph, "y", y));
    features(attention, "heads");
    if (heads != "heads") text.splits.back()[1].second = "\"" + heads + "\"";
  }
  if (const std::string mlp = scope_with(graph, "mlp", "ffn"); !mlp.empty()) features(mlp, "ffn");
  std::vector<std::string> with_vocab = ops_outside(graph, "vocab,hidden");
  if (!with_vocab.empty()) {
    const std::vector<std::string> loss = loss_ops(graph);
    text.split(alternatives(with_vocab), "batch", "dp,x");
    if (!loss.empty()) text.split(alternatives(loss), "batch", "dp,x,z");
    with_vocab.insert(with_vocab.end(), loss.begin(), loss.end());
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
