// The recipe that gives each range of layers a strategy of its own, on one mesh
// (docs/planners/galvatron.md section 4).
#include <algorithm>
#include <iterator>

#include "tessera/base/text.h"
#include "tessera/plan/recipes/families.h"
#include "tessera/plan/recipes/parts.h"
#include "tessera/plan/recipes/per_layer_spec.h"

namespace tessera::recipes {
namespace {

using Names = std::vector<std::string>;

// Joins the lists of axes that are not empty by commas: "a,c".
std::string joined(const Names& lists) {
  Names some;
  std::copy_if(lists.begin(), lists.end(), std::back_inserter(some),
               [](const std::string& list) { return !list.empty(); });
  return join(some, ",");
}

// A `RangeWriter` writes the entries of one range, including those for the ops before or after the
// blocks that belong to the range.
class RangeWriter {
 public:
  RangeWriter(PlanText& text, const Graph& graph, const LayerRange& range, const Axes& axes)
      : text_(text),
        graph_(graph),
        range_(range),
        layers_(range.of == LayerRange::Of::kLayers ? range.layers() : ""),
        tp_(axes_of(range, axes, "tp")),
        dp_(axes_of(range, axes, "dp")),
        cp_(axes_of(range, axes, "cp")),
        ulysses_(axes_of(range, axes, "ulysses")) {}

  // Adds the entries of the range. `scopes` are patterns of all its ops, `around` patterns of those
  // of its ops that are in no block.
  Status add(const Names& scopes, const Names& around) {
    const std::string all = alternatives(scopes);
    split(all, "batch", dp_);
    if (range_.sequence_shard || !cp_.empty() || !ulysses_.empty()) add_tokens(all, around);
    if (!layers_.empty()) TESSERA_TRY_VOID(add_attention());
    if (!layers_.empty()) split(scope_with(graph_, "mlp", "ffn", layers_), "ffn", tp_);
    if (const Names vocab = with_vocab(around); !vocab.empty())
      split(alternatives(vocab), "vocab", tp_);
    add_zero(scopes);
    return layers_.empty() ? Status() : recompute(text_, graph_, range_.recompute, layers_);
  }

 private:
  void split(const std::string& ops, const std::string& dim, const std::string& over) {
    if (!ops.empty() && !over.empty() && has_dim(graph_, ops, dim)) text_.split(ops, dim, over);
  }

  Names with_vocab(const Names& around) const {
    Names out;
    for (const std::string& top : around) {
      if (has_dim(graph_, top, "vocab")) out.push_back(top == "embed" ? "embed.token" : top);
    }
    return out;
  }

  // Cuts seq over cp and ulysses. If the range has sequence_shard, also cuts it over tp in the ops
  // whose heads, ffn or vocab tp does not cut.
  void add_tokens(const std::string& all, const Names& around) {
    const std::string whole = joined({cp_, ulysses_});
    split(all, "seq", joined({whole, range_.sequence_shard ? tp_ : ""}));
    if (!range_.sequence_shard || tp_.empty()) return;
    if (!layers_.empty()) {
      text_.split(ops_with(graph_, "heads,seq", "", layers_), "seq", whole);
      text_.split(ops_with(graph_, "ffn,seq", "", layers_), "seq", whole);
    }
    if (const Names vocab = with_vocab(around); !vocab.empty())
      text_.split(alternatives(vocab), "seq", whole);
  }

  Status add_attention() {
    const std::string cores = attention_cores(graph_, layers_);
    const std::string attention = scope_with(graph_, "attn", "heads", layers_);
    if (cores.empty() && !(cp_.empty() && ulysses_.empty())) {
      return invalid_input("spec: '" + range_.text +
                           "' needs ops blocks.*.attn.core with the dim 'kv', found none");
    }
    std::string cut = "heads";  // the dim that tp cuts
    if (!tp_.empty() && !attention.empty()) {
      TESSERA_TRY(cut, heads_dim(graph_, "tp", range_.degree("tp")));
      split(attention, cut, tp_);
    }
    if (!ulysses_.empty()) {
      const int64_t tp = range_.degree("tp"), all = tp * range_.degree("ulysses");
      TESSERA_TRY(const std::string heads,
                  heads_dim(graph_, tp == 1 ? "ulysses" : "tp * ulysses", all));
      // If tp cuts the key heads and there are too few of these for tp * ulysses ranks, ulysses
      // cuts the query heads of each key head.
      const bool apart = cut == "heads" && size_of(graph_, attention, "heads") < all && tp > 1;
      text_.split(cores, "seq", cp_);
      split(cores, apart ? "group" : heads, apart ? ulysses_ : joined({tp_, ulysses_}));
    }
    text_.rotate(cores, "kv", cp_);
    return {};
  }

  void add_zero(const Names& scopes) {
    const std::string over = joined({dp_, cp_, ulysses_});
    if (range_.zero == 0 || over.empty()) return;
    const std::string parameters = parameters_of(scopes);
    text_.store("optimizer.*." + parameters, over);
    if (range_.zero >= 2) text_.store("grad." + parameters, over);
    if (range_.zero >= 3) text_.store(parameters, over);
  }

  // Returns a pattern of the range's parameters. In a graph with ops blocks.<i> the parameters are
  // named after their ops, so the patterns of the ops are used; else each parameter is listed.
  std::string parameters_of(const Names& scopes) const {
    if (block_count(graph_) > 0) return alternatives(scopes) + ".*{weight,bias}";
    Names names;
    for (const OpId op : selected(graph_, alternatives(scopes))) {
      for (const TensorId input : graph_.op(op).inputs) {
        const Tensor& tensor = graph_.tensor(input);
        if (tensor.role == Role::kParameter &&
            std::find(names.begin(), names.end(), tensor.name) == names.end())
          names.push_back(tensor.name);
      }
    }
    return alternatives(names);
  }

  PlanText& text_;
  const Graph& graph_;
  const LayerRange& range_;
  const std::string layers_;  // pattern of block numbers; "": the range has no blocks
  const std::string tp_, dp_, cp_, ulysses_;  // axes
};

Result<PlanText> emit_per_layer(const RecipeArguments& arguments, const Graph& graph) {
  const Blocks blocks(graph);
  if (blocks.count() == 0) {
    return invalid_input(
        "expected blocks (ops blocks.<i>, or what repeats in a graph), found none");
  }
  TESSERA_TRY(const auto ranges, parse_layer_ranges(arguments.text("spec"), blocks.count()));
  TESSERA_TRY(const Axes axes, common_axes(ranges));
  PlanText text{.mesh = {{"pp", arguments.number("pp")}},
                .micro_batches = arguments.number("micro_batches")};
  text.mesh.insert(text.mesh.end(), axes.begin(), axes.end());
  TESSERA_TRY_VOID(pipeline(text, graph, arguments.number("pp"), "1f1b"));
  int64_t ring = 1;
  for (const LayerRange& range : ranges) {
    Names scopes, around;
    if (&range == &ranges.front()) scopes = around = blocks.before();
    if (range.of == LayerRange::Of::kLayers)
      scopes.push_back(blocks.run(range.first, range.last - range.first + 1));
    if (&range == &ranges.back()) {
      around.insert(around.end(), blocks.after().begin(), blocks.after().end());
      scopes.insert(scopes.end(), blocks.after().begin(), blocks.after().end());
    }
    if (scopes.empty()) {
      return invalid_input("spec: expected ops around the blocks for '" + range.text +
                           "', found none");
    }
    ring = std::max(ring, range.degree("cp"));
    TESSERA_TRY_VOID(RangeWriter(text, graph, range, axes).add(scopes, around));
  }
  balance(text, graph, arguments.text("order"), ring);
  return text;
}

}  // namespace

std::vector<Recipe> per_layer_recipes() {
  return {{"per_layer",
           "Galvatron: its own degrees, sharding and recomputation for each range of layers, for "
           "the embedding and for the head",
           {{"spec", std::nullopt, "\"embed:tp4;0-3:tp2,dp2;4-7:dp2,cp2,zero3;head:ulysses4\"", 0,
             true},
            pp_argument("1"),
            micro_batches_argument("1"),
            order_argument()},
           emit_per_layer}};
}

}  // namespace tessera::recipes
