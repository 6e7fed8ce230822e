#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "tessera/base/text.h"
#include "tessera/graph/kinds.h"
#include "tessera/plan/recipes/families.h"
#include "tessera/plan/recipes/parts.h"

namespace tessera::recipes {
namespace {

using Selected = std::vector<bool>;  // of the ops of a graph

bool in_block(const Op& op) {
  return op.phase == Phase::kForward && op.path.starts_with("blocks.");
}

bool is_core(const Op& op) { return info_of(op).work == WorkClass::kAttention; }

bool is_product(const Op& op) {
  const auto work = info_of(op).work;
  return work == WorkClass::kMatmul || work == WorkClass::kConvolution;
}

bool is_sum(const Op& op) { return info_of(op).merges == Combiner::kSum; }

bool makes_dim(const Graph& graph, const Op& op, std::string_view dim) {
  const auto& dims = graph.tensor(op.outputs.at(0)).dims;
  return std::any_of(dims.begin(), dims.end(), [&](const Dim& d) { return d.name == dim; });
}

bool in_scope(const Op& op, std::string_view scope) {
  return name_in_block(op.path).starts_with(std::string(scope) + ".");
}

template <typename Predicate>
Selected ops_where(const Graph& graph, Predicate&& is_meant) {
  Selected out(graph.ops().size());
  for (const Op& op : graph.ops()) out[op.id.index()] = in_block(op) && is_meant(op);
  return out;
}

// Norms with parameters of their own; a softmax is none.
Selected norms(const Graph& graph) {
  return ops_where(graph, [&](const Op& op) {
    return info_of(op).work == WorkClass::kNorm &&
           name_in_block(op.path).find('.') == std::string::npos &&
           std::any_of(op.inputs.begin(), op.inputs.end(),
                       [&](TensorId input) { return graph.parameter_of(input).valid(); });
  });
}

Selected activations(const Graph& graph) {
  return ops_where(graph,
                   [&](const Op& op) { return !is_product(op) && makes_dim(graph, op, "ffn"); });
}

Selected cores(const Graph& graph) { return ops_where(graph, is_core); }

// From the dim `rank` of latent attention up to its core.
Selected widened(const Graph& graph) {
  std::vector<bool> narrow(graph.tensors().size());
  return ops_where(graph, [&](const Op& op) {
    if (is_core(op)) return false;
    const bool reads = std::any_of(op.inputs.begin(), op.inputs.end(),
                                   [&](TensorId input) { return narrow[input.index()]; });
    const bool follows = reads || (is_product(op) && makes_dim(graph, op, "rank"));
    for (const TensorId output : op.outputs) narrow[output.index()] = follows;
    return reads;
  });
}

Selected scope(const Graph& graph, std::string_view name) {
  return ops_where(graph, [&](const Op& op) { return in_scope(op, name); });
}

// Of state space blocks: all but products, what they read, and the scan.
Selected scan_inputs(const Graph& graph) {
  std::vector<bool> read(graph.tensors().size());
  for (const Op& op : graph.ops()) {
    for (const TensorId input : op.inputs)
      read[input.index()] = read[input.index()] || (in_block(op) && is_product(op));
  }
  return ops_where(graph, [&](const Op& op) {
    return in_scope(op, "ssm") && !is_product(op) && info_of(op).work != WorkClass::kScan &&
           !read[op.outputs.at(0).index()];
  });
}

Selected cheap(const Graph& graph) {
  return ops_where(graph, [](const Op& op) { return !is_product(op) && !is_sum(op); });
}

Selected everything(const Graph& graph) {
  return ops_where(graph, [](const Op&) { return true; });
}

// A word of the argument: which ops are computed again. Whole blocks are said by what is kept.
struct Module {
  const char* name;
  std::function<Selected(const Graph&)> ops;
  const char* needs;  // what a graph has that has some
  bool whole = false;
};

const std::vector<Module>& modules() {
  static const std::vector<Module> all = {
      {"selective", cheap, "blocks", true},
      {"full", everything, "blocks", true},
      {"norm", norms, "norms directly in blocks (as ops blocks.<i>.ln_1)"},
      {"act", activations, "ops with the dim 'ffn' beside products"},
      {"core", cores, "attention in blocks"},
      {"mla_up", widened, "latent attention (the dim 'rank')"},
      {"mlp", [](const Graph& graph) { return scope(graph, "mlp"); }, "ops blocks.*.mlp"},
      {"moe", [](const Graph& graph) { return scope(graph, "moe"); }, "ops blocks.*.moe"},
      {"scan", scan_inputs, "state space blocks (ops blocks.*.ssm)"},
  };
  return all;
}

// Ops whose results are read outside their block.
Selected leaving(const Graph& graph) {
  Selected out(graph.ops().size());
  std::vector<std::string> made_in(graph.tensors().size());  // "blocks.3."
  for (const Op& op : graph.ops()) {
    if (op.phase != Phase::kForward) continue;
    for (const TensorId input : op.inputs) {
      const std::string& block = made_in[input.index()];
      if (block.empty() || op.path.starts_with(block)) continue;
      out[graph.tensor(input).producer.index()] = true;
    }
    if (!in_block(op)) continue;
    for (const TensorId output : op.outputs)
      made_in[output.index()] = op.path.substr(0, op.path.find('.', 7) + 1);
  }
  return out;
}

// Names inside a block; `which`: of the ops that are marked or of all others.
std::vector<std::string> names_of(const Graph& graph, const Selected& marked, bool which) {
  std::vector<std::string> names;
  for (const Op& op : graph.ops()) {
    if (in_block(op) && marked[op.id.index()] == which) names.push_back(name_in_block(op.path));
  }
  return names;
}

Result<PlanText> emit_recompute(const RecipeArguments& arguments, const Graph& graph) {
  PlanText text{.mesh = {}, .micro_batches = arguments.number("micro_batches")};
  TESSERA_TRY_VOID(recompute(text, graph, arguments.text("recompute")));
  return text;
}

}  // namespace

Status recompute(PlanText& text, const Graph& graph, const std::string& what,
                 const std::string& layers) {
  if (what == "none") return {};
  Selected again(graph.ops().size());
  bool whole = false;
  for (const std::string& word : split_text(what, '+')) {
    const auto module = std::find_if(modules().begin(), modules().end(),
                                     [&](const Module& known) { return word == known.name; });
    if (module == modules().end()) continue;  // none
    const Selected ops = module->ops(graph);
    if (std::find(ops.begin(), ops.end(), true) == ops.end())
      return invalid_input(fmt::format("recompute = {} needs {}, found none", word, module->needs));
    std::transform(ops.begin(), ops.end(), again.begin(), again.begin(), std::logical_or<>());
    whole = whole || module->whole;
  }
  const Selected kept = leaving(graph);
  for (size_t i = 0; i < again.size(); ++i) again[i] = again[i] && !kept[i];
  const std::string blocks = "blocks." + layers;
  const std::vector<std::string> names = names_of(graph, again, !whole);
  if (names.empty()) {
    return invalid_input(
        fmt::format("recompute = {} selects nothing that stays in its block", what));
  }
  if (whole) text.recompute(blocks);
  text.recompute(blocks + "." + by_scope(names), !whole);
  return {};
}

RecipeArgument recompute_argument() {
  std::vector<std::string> words = {"none"};
  for (const Module& module : modules()) words.emplace_back(module.name);
  RecipeArgument argument =
      choice("recompute", "none", std::move(words),
             "computed again in the backward pass: nothing; selective: cheap ops and attention's "
             "core; full: all but block outputs; or modules of blocks, as norm+act");
  argument.joined = true;
  return argument;
}

std::vector<Recipe> recompute_recipes() {
  return {{"recompute",
           "one rank; activations of the blocks are computed again in the backward pass",
           {recompute_argument(), micro_batches_argument("1")},
           emit_recompute}};
}

}  // namespace tessera::recipes
