#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>

#include "tessera/base/text.h"
#include "tessera/graph/kinds.h"
#include "tessera/plan/recipes/families.h"
#include "tessera/plan/recipes/parts.h"
#include "tessera/plan/resolve/selector.h"

namespace tessera::recipes {
namespace {

using Selected = std::vector<bool>;  // by op of a graph

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

bool in_scope(const Blocked& blocks, const Op& op, std::string_view scope) {
  return blocks.named && name_in_block(op.path).starts_with(std::string(scope) + ".");
}

template <typename Predicate>
Selected ops_where(const Blocked& blocks, Predicate&& is_meant) {
  const std::vector<Op>& ops = blocks.graph.ops();
  Selected out(ops.size());
  for (const Op& op : ops) out[op.id.index()] = blocks.holds(op) && is_meant(op);
  return out;
}

// Selects the norms that have parameters, so no softmax.
Selected norms(const Blocked& blocks) {
  return ops_where(blocks, [&](const Op& op) {
    return info_of(op).work == WorkClass::kNorm &&
           (!blocks.named || name_in_block(op.path).find('.') == std::string::npos) &&
           std::any_of(op.inputs.begin(), op.inputs.end(),
                       [&](TensorId input) { return blocks.graph.parameter_of(input).valid(); });
  });
}

Selected activations(const Blocked& blocks) {
  return ops_where(
      blocks, [&](const Op& op) { return !is_product(op) && makes_dim(blocks.graph, op, "ffn"); });
}

Selected cores(const Blocked& blocks) { return ops_where(blocks, is_core); }

// Selects the ops of latent attention after the product that makes the narrow dim `rank` and before
// the core.
Selected widened(const Blocked& blocks) {
  const Graph& graph = blocks.graph;
  std::vector<bool> narrow(graph.tensors().size());
  return ops_where(blocks, [&](const Op& op) {
    if (is_core(op)) return false;
    const bool reads = std::any_of(op.inputs.begin(), op.inputs.end(),
                                   [&](TensorId input) { return narrow[input.index()]; });
    const bool follows = reads || (is_product(op) && makes_dim(graph, op, "rank"));
    for (const TensorId output : op.outputs) narrow[output.index()] = follows;
    return reads;
  });
}

Selected scope(const Blocked& blocks, std::string_view name) {
  return ops_where(blocks, [&](const Op& op) { return in_scope(blocks, op, name); });
}

// Selects the ops of state space blocks, except products, scans, and ops that make the input of
// a product.
Selected scan_inputs(const Blocked& blocks) {
  const Graph& graph = blocks.graph;
  std::vector<bool> read(graph.tensors().size());
  for (const Op& op : graph.ops()) {
    for (const TensorId input : op.inputs)
      read[input.index()] = read[input.index()] || (blocks.holds(op) && is_product(op));
  }
  return ops_where(blocks, [&](const Op& op) {
    return in_scope(blocks, op, "ssm") && !is_product(op) && info_of(op).work != WorkClass::kScan &&
           !read[op.outputs.at(0).index()];
  });
}

Selected cheap(const Blocked& blocks) {
  return ops_where(blocks, [](const Op& op) { return !is_product(op) && !is_sum(op); });
}

Selected everything(const Blocked& blocks) {
  return ops_where(blocks, [](const Op&) { return true; });
}

// A `Module` is a word that the argument `recompute` may have, with the ops that are then computed
// again. If these are most of a block (`whole`), the plan has an entry for the whole block and one
// for the ops that are kept.
struct Module {
  const char* name;
  std::function<Selected(const Blocked&)> ops;
  const char* needs;  // text for the error if the graph has no such ops
  bool whole = false;
};

const std::vector<Module>& modules() {
  static const std::vector<Module> all = {
      {"selective", cheap, "blocks", true},
      {"full", everything, "blocks", true},
      {"norm", norms, "norms directly in blocks (as ops blocks.<i>.ln_1)"},
      {"act", activations,
       "activations of MLPs (ops with the dim 'ffn' beside products; selective computes all ops "
       "but "
       "products again)"},
      {"core", cores, "attention in blocks"},
      {"mla_up", widened, "latent attention (the dim 'rank')"},
      {"mlp", [](const Blocked& blocks) { return scope(blocks, "mlp"); }, "ops blocks.*.mlp"},
      {"moe", [](const Blocked& blocks) { return scope(blocks, "moe"); }, "ops blocks.*.moe"},
      {"scan", scan_inputs, "state space blocks (ops blocks.*.ssm)"},
  };
  return all;
}

// Selects ops whose results are read outside their block.
Selected leaving(const Blocked& blocks) {
  const Graph& graph = blocks.graph;
  Selected out(graph.ops().size());
  for (const Op& op : graph.ops()) {
    if (op.phase != Phase::kForward) continue;
    for (const TensorId input : op.inputs) {
      const OpId producer = graph.tensor(input).producer;
      if (!producer.valid()) continue;
      const int64_t made_in = blocks.block[producer.index()];
      if (made_in >= 0 && made_in != blocks.block[op.id.index()]) out[producer.index()] = true;
    }
  }
  return out;
}

// Returns the names inside their blocks of the ops in blocks for which `marked` has the
// value `which`.
std::vector<std::string> names_of(const Blocked& blocks, const Selected& marked, bool which) {
  std::vector<std::string> names;
  for (const Op& op : blocks.graph.ops()) {
    if (blocks.holds(op) && marked[op.id.index()] == which) names.push_back(name_in_block(op.path));
  }
  return names;
}

// Returns patterns of the outputs of the marked ops, for blocks without names. If all these
// tensors are named like the ops that make them, the patterns are prefixes of paths; else the
// names of the tensors.
std::vector<std::string> tensors_of(const Blocked& blocks, const Selected& marked) {
  const Graph& graph = blocks.graph;
  std::vector<OpId> ops;
  std::vector<std::string> names;
  bool by_path = true;
  for (const Op& op : graph.ops()) {
    if (!blocks.holds(op) || !marked[op.id.index()]) continue;
    ops.push_back(op.id);
    for (const TensorId output : op.outputs) {
      names.push_back(graph.tensor(output).name);
      by_path = by_path && (names.back() == op.path || names.back().starts_with(op.path + "."));
    }
  }
  return by_path ? patterns_of(graph, ops) : names;
}

struct Asked {
  Selected ops;        // ops to compute again; none whose result is read outside its block
  bool whole = false;  // whether some word has Module::whole
};

Result<Asked> ops_to_recompute(const Blocked& blocks, const std::string& what) {
  Asked out{Selected(blocks.graph.ops().size()), false};
  for (const std::string& word : split_text(what, '+')) {
    const auto module = std::find_if(modules().begin(), modules().end(),
                                     [&](const Module& known) { return word == known.name; });
    if (module == modules().end()) continue;  // the word is "none"
    const Selected ops = module->ops(blocks);
    if (std::find(ops.begin(), ops.end(), true) == ops.end())
      return invalid_input(fmt::format("recompute = {} needs {}, found none", word, module->needs));
    std::transform(ops.begin(), ops.end(), out.ops.begin(), out.ops.begin(), std::logical_or<>());
    out.whole = out.whole || module->whole;
  }
  const Selected kept = leaving(blocks);
  for (size_t i = 0; i < out.ops.size(); ++i) out.ops[i] = out.ops[i] && !kept[i];
  return out;
}

Status nothing_selected(const std::string& what) {
  return invalid_input(
      fmt::format("recompute = {} selects nothing that stays inside the blocks", what));
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
  const Blocked in_blocks(graph);
  TESSERA_TRY(auto asked, ops_to_recompute(in_blocks, what));
  const Glob numbers(layers);
  for (size_t i = 0; i < asked.ops.size(); ++i) {
    asked.ops[i] =
        asked.ops[i] && (in_blocks.named || numbers.matches(std::to_string(in_blocks.block[i])));
  }
  const std::vector<std::string> names = in_blocks.named
                                             ? names_of(in_blocks, asked.ops, !asked.whole)
                                             : tensors_of(in_blocks, asked.ops);
  if (names.empty()) return nothing_selected(what);
  if (!in_blocks.named) {
    text.recompute(alternatives(names));
    return {};
  }
  const std::string blocks = "blocks." + layers;
  if (asked.whole) text.recompute(blocks);
  text.recompute(blocks + "." + by_scope(names), !asked.whole);
  return {};
}

Status recompute_among(PlanText& text, const Graph& graph, const std::string& what,
                       const std::vector<bool>& among) {
  if (what == "none") return {};
  const Blocked in_blocks(graph);
  TESSERA_TRY(auto asked, ops_to_recompute(in_blocks, what));
  std::transform(asked.ops.begin(), asked.ops.end(), among.begin(), asked.ops.begin(),
                 std::logical_and<>());
  const std::vector<std::string> names = tensors_of(in_blocks, asked.ops);
  if (!names.empty()) text.recompute(alternatives(names));
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
