#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>

#include "tessera/base/text.h"
#include "tessera/graph/kinds.h"
#include "tessera/graph/repeat.h"
#include "tessera/plan/recipes/families.h"
#include "tessera/plan/recipes/parts.h"
#include "tessera/plan/selector.h"

namespace tessera::recipes {
namespace {

using Selected = std::vector<bool>;  // of the ops of a graph

// A graph and the block of each forward op, by number; -1: in none. Blocks without the path
// blocks.<i> are those that repeat.
struct Blocked {
  const Graph& graph;
  std::vector<int64_t> block;
  bool named = true;

  bool holds(const Op& op) const { return block[op.id.index()] >= 0; }
};

Blocked blocked(const Graph& graph) {
  Blocked out{graph, std::vector<int64_t>(graph.ops().size(), -1)};
  std::map<std::string_view, int64_t> numbers;  // by "3" of "blocks.3.attn.q"
  for (const Op& op : graph.ops()) {
    if (op.phase != Phase::kForward || !op.path.starts_with("blocks.")) continue;
    const std::string_view name = std::string_view(op.path).substr(0, op.path.find('.', 7));
    out.block[op.id.index()] =
        numbers.emplace(name, static_cast<int64_t>(numbers.size())).first->second;
  }
  if (!numbers.empty()) return out;
  out.named = false;
  const std::vector<std::vector<OpId>> found = repeated_blocks(graph);
  for (size_t i = 0; i < found.size(); ++i) {
    for (const OpId op : found[i]) out.block[op.index()] = static_cast<int64_t>(i);
  }
  return out;
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

// Norms with parameters of their own; a softmax is none.
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

// From the dim `rank` of latent attention up to its core.
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

// Of state space blocks: all but products, what they read, and the scan.
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

// A word of the argument: which ops are computed again. Whole blocks are said by what is kept.
struct Module {
  const char* name;
  std::function<Selected(const Blocked&)> ops;
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
      {"mlp", [](const Blocked& blocks) { return scope(blocks, "mlp"); }, "ops blocks.*.mlp"},
      {"moe", [](const Blocked& blocks) { return scope(blocks, "moe"); }, "ops blocks.*.moe"},
      {"scan", scan_inputs, "state space blocks (ops blocks.*.ssm)"},
  };
  return all;
}

// Ops whose results are read outside their block.
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

// Names inside a block; `which`: of the ops that are marked or of all others.
std::vector<std::string> names_of(const Blocked& blocks, const Selected& marked, bool which) {
  std::vector<std::string> names;
  for (const Op& op : blocks.graph.ops()) {
    if (blocks.holds(op) && marked[op.id.index()] == which) names.push_back(name_in_block(op.path));
  }
  return names;
}

// The same of blocks that were found: patterns of whole paths.
std::vector<std::string> paths_of(const Blocked& blocks, const Selected& marked, bool which) {
  std::vector<OpId> ops;
  for (const Op& op : blocks.graph.ops()) {
    if (blocks.holds(op) && marked[op.id.index()] == which) ops.push_back(op.id);
  }
  return patterns_of(blocks.graph, ops);
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
  const Blocked in_blocks = blocked(graph);
  Selected again(graph.ops().size());
  bool whole = false;
  for (const std::string& word : split_text(what, '+')) {
    const auto module = std::find_if(modules().begin(), modules().end(),
                                     [&](const Module& known) { return word == known.name; });
    if (module == modules().end()) continue;  // none
    const Selected ops = module->ops(in_blocks);
    if (std::find(ops.begin(), ops.end(), true) == ops.end())
      return invalid_input(fmt::format("recompute = {} needs {}, found none", word, module->needs));
    std::transform(ops.begin(), ops.end(), again.begin(), again.begin(), std::logical_or<>());
    whole = whole || module->whole;
  }
  const Selected kept = leaving(in_blocks);
  const Glob numbers(layers);
  for (size_t i = 0; i < again.size(); ++i) {
    again[i] = again[i] && !kept[i] &&
               (in_blocks.named || numbers.matches(std::to_string(in_blocks.block[i])));
  }
  const std::vector<std::string> names =
      in_blocks.named ? names_of(in_blocks, again, !whole) : paths_of(in_blocks, again, true);
  if (names.empty()) {
    return invalid_input(
        fmt::format("recompute = {} selects nothing that stays in its block", what));
  }
  if (!in_blocks.named) {
    text.recompute(alternatives(names));
    return {};
  }
  const std::string blocks = "blocks." + layers;
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
