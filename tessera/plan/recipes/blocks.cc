// Finds the blocks of a model, and patterns that select ops.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>

#include "tessera/base/text.h"
#include "tessera/graph/repeat.h"
#include "tessera/plan/recipes/patterns.h"
#include "tessera/plan/recipes/writer.h"
#include "tessera/plan/resolve/selector.h"

namespace tessera::recipes {
namespace {

using Names = std::vector<std::string>;

// A `Scope` is a node in the tree of path components. It counts the ops whose paths go through it.
struct Scope {
  std::map<std::string, Scope> below;
  Names order;                  // keys of `below`, in the order of the ops
  int64_t ops = 0, chosen = 0;  // ops at this node and below it, and the chosen ones
  bool all() const { return chosen == ops; }
  bool any() const { return chosen > 0; }
};

// Adds the path of an op to the tree. Returns the scopes along the path, from the outermost to
// the innermost.
std::vector<Scope*> add(Scope& top, std::string_view path) {
  std::vector<Scope*> out = {&top};
  ++top.ops;
  while (!path.empty()) {
    const size_t dot = path.find('.');
    const auto [below, is_new] = out.back()->below.try_emplace(std::string(path.substr(0, dot)));
    if (is_new) out.back()->order.push_back(below->first);
    out.push_back(&below->second);
    ++below->second.ops;
    path = dot == std::string_view::npos ? "" : path.substr(dot + 1);
  }
  return out;
}

void add(Scope& top, std::string_view path, bool chosen) {
  for (Scope* scope : add(top, path)) scope->chosen += chosen ? 1 : 0;
}

// Replaces each run of consecutive numbers in a list of names by a range: "4", "5" become "[4-5]".
Names with_ranges(const Names& names) {
  Names out;
  for (size_t i = 0; i < names.size();) {
    const auto first = parse_int(names[i]);
    size_t end = i + 1;
    while (first && end < names.size() &&
           names[end] == std::to_string(*first + static_cast<int64_t>(end - i)))
      ++end;
    out.push_back(end == i + 1 ? names[i] : fmt::format("[{}-{}]", names[i], names[end - 1]));
    i = end;
  }
  return out;
}

Names patterns_below(const Scope& scope) {
  Names whole, out;
  const auto flush = [&] {
    for (std::string& name : with_ranges(whole)) out.push_back(std::move(name));
    whole.clear();
  };
  for (const std::string& name : scope.order) {
    const Scope& one = scope.below.at(name);
    if (!one.any()) continue;
    if (one.all()) {
      whole.push_back(name);
      continue;
    }
    flush();
    const Names inside = patterns_below(one);
    // If no op below is chosen, the name is the whole path of a chosen op, and other paths
    // continue it.
    out.push_back(inside.empty() ? name : name + "." + alternatives(inside));
  }
  flush();
  return out;
}

// Returns the path with "*" in place of each number, so that the op has the same name in every
// block: "blocks.*.attn.q" for "blocks.3.attn.q".
std::string in_every_block(const std::string& path) {
  Names parts = split_text(path, '.');
  for (std::string& part : parts) {
    if (parse_int(part)) part = "*";
  }
  return join(parts, ".");
}

// Returns whether the glob selects the op by any prefix of its path, as selectors do.
bool selects(const Glob& glob, const Op& op) {
  for (size_t end = 0; end < op.path.size();) {
    end = std::min(op.path.find_first_of(".@", end + 1), op.path.size());
    if (glob.matches(std::string_view(op.path).substr(0, end))) return true;
  }
  return false;
}

bool in_named_block(const Op& op) {
  return op.phase == Phase::kForward && op.path.starts_with("blocks.");
}

bool has_dims(const Op& op, const std::string& with) {
  const Names dims = split_text(with, ',');
  return std::all_of(dims.begin(), dims.end(),
                     [&](const std::string& dim) { return op.annotation.find(dim) >= 0; });
}

template <typename Predicate>
std::vector<OpId> ops_in_blocks(const Blocked& blocks, Predicate&& is_meant) {
  std::vector<OpId> ops;
  for (const Op& op : blocks.graph.ops()) {
    if (blocks.holds(op) && is_meant(op)) ops.push_back(op.id);
  }
  return ops;
}

}  // namespace

Names patterns_of(const Graph& graph, const std::vector<OpId>& ops, const std::string& dim) {
  std::vector<bool> chosen(graph.ops().size());
  for (const OpId op : ops) chosen[op.index()] = true;
  const auto matters = [&](const Op& op) { return dim.empty() || op.annotation.find(dim) >= 0; };
  Scope by_number, in_all;
  for (const Op& op : graph.ops()) {
    if (op.phase != Phase::kForward || !matters(op)) continue;
    add(by_number, op.path, chosen[op.id.index()]);
    add(in_all, in_every_block(op.path), chosen[op.id.index()]);
  }
  Names exact = patterns_below(by_number), short_ones = patterns_below(in_all);
  const auto meant = [&](const Names& patterns) {
    std::vector<OpId> found = selected(graph, alternatives(patterns));
    std::erase_if(found, [&](OpId op) { return !matters(graph.op(op)); });
    return found;
  };
  return meant(short_ones) == meant(exact) ? short_ones : exact;
}

std::vector<OpId> selected(const Graph& graph, const std::string& pattern) {
  const Glob glob(pattern);
  std::vector<OpId> ops;
  for (const Op& op : graph.ops()) {
    if (op.phase == Phase::kForward && selects(glob, op)) ops.push_back(op.id);
  }
  return ops;
}

int64_t size_of(const Graph& graph, const std::string& pattern, std::string_view dim) {
  const Glob glob(pattern);
  for (const Op& op : graph.ops()) {
    const int d = op.phase == Phase::kForward ? op.annotation.find(dim) : -1;
    if (d >= 0 && selects(glob, op)) return op.annotation.dims[static_cast<size_t>(d)].size;
  }
  return 0;
}

Names patterns_of(const Graph& graph, const std::vector<OpId>& ops) {
  std::vector<bool> chosen(graph.ops().size());
  for (const OpId op : ops) chosen[op.index()] = true;
  Scope top;
  for (const Op& op : graph.ops()) {
    if (op.phase == Phase::kForward) add(top, op.path, chosen[op.id.index()]);
  }
  return patterns_below(top);
}

std::vector<Names> patterns_of_each(const Graph& graph,
                                    const std::vector<std::vector<OpId>>& groups) {
  Scope top;
  std::vector<std::vector<Scope*>> holding(graph.ops().size());
  for (const Op& op : graph.ops()) {
    if (op.phase == Phase::kForward) holding[op.id.index()] = add(top, op.path);
  }
  const auto choose = [&](const std::vector<OpId>& ops, int64_t by) {
    for (const OpId op : ops) {
      for (Scope* scope : holding[op.index()]) scope->chosen += by;
    }
  };
  std::vector<Names> out;
  for (const std::vector<OpId>& ops : groups) {
    choose(ops, 1);
    out.push_back(patterns_below(top));
    choose(ops, -1);
  }
  return out;
}

Blocks::Blocks(const Graph& graph) : graph_(graph), count_(block_count(graph)) {
  if (count_ > 0) {
    std::tie(before_, after_) = around_blocks(graph);
    return;
  }
  found_ = repeated_blocks(graph);
  count_ = static_cast<int64_t>(found_.size());
  if (count_ == 0) return;
  std::vector<OpId> before, after;
  for (const Op& op : graph.ops()) {
    if (op.phase != Phase::kForward) continue;
    if (op.id < found_.front().front()) before.push_back(op.id);
    if (op.id > found_.back().back()) after.push_back(op.id);
  }
  before_ = patterns_of(graph, before);
  after_ = patterns_of(graph, after);
}

std::string Blocks::run(int64_t first, int64_t size) const {
  if (found_.empty()) {
    return size == 1 ? fmt::format("blocks.{}", first)
                     : fmt::format("blocks.[{}-{}]", first, first + size - 1);
  }
  std::vector<OpId> ops;
  for (int64_t i = first; i < first + size; ++i) {
    const std::vector<OpId>& block = found_[static_cast<size_t>(i)];
    ops.insert(ops.end(), block.begin(), block.end());
  }
  return alternatives(patterns_of(graph_, ops));
}

std::string Blocks::each() const {
  if (found_.empty()) return "blocks.*";
  Names all;
  for (const std::vector<OpId>& block : found_) {
    for (const std::string& pattern : patterns_of(graph_, block)) {
      const std::string name = in_every_block(pattern);
      if (std::find(all.begin(), all.end(), name) == all.end()) all.push_back(name);
    }
  }
  return alternatives(all);
}

Blocked::Blocked(const Graph& the_graph)
    : graph(the_graph), block(the_graph.ops().size(), int64_t{-1}) {
  std::map<std::string_view, int64_t> numbers;  // by "blocks.3" of "blocks.3.attn.q"
  for (const Op& op : graph.ops()) {
    if (!in_named_block(op)) continue;
    const std::string_view name = std::string_view(op.path).substr(0, op.path.find('.', 7));
    block[op.id.index()] =
        numbers.emplace(name, static_cast<int64_t>(numbers.size())).first->second;
  }
  if (!numbers.empty()) return;
  named = false;
  const std::vector<std::vector<OpId>> found = repeated_blocks(graph);
  for (size_t i = 0; i < found.size(); ++i) {
    for (const OpId op : found[i]) block[op.index()] = static_cast<int64_t>(i);
  }
}

std::string pattern_in_blocks(const Blocked& blocks, const std::vector<OpId>& ops,
                              const std::string& dim, const std::string& layers) {
  if (ops.empty()) return "";
  if (!blocks.named) return alternatives(patterns_of(blocks.graph, ops, dim));
  Names names;
  for (const OpId op : ops) names.push_back(name_in_block(blocks.graph.op(op).path));
  return "blocks." + layers + "." + by_scope(names);
}

std::string ops_with(const Graph& graph, const std::string& with, const std::string& without,
                     const std::string& layers) {
  const Blocked blocks(graph);
  const Glob numbers(layers);
  const std::vector<OpId> ops = ops_in_blocks(blocks, [&](const Op& op) {
    if (!blocks.named && !numbers.matches(std::to_string(blocks.block[op.id.index()])))
      return false;
    return has_dims(op, with) && (without.empty() || op.annotation.find(without) < 0);
  });
  return pattern_in_blocks(blocks, ops, "", layers);
}

std::string products(const Graph& graph, const std::string& features, Products which) {
  const Blocked blocks(graph);
  const std::vector<OpId> ops = ops_in_blocks(blocks, [&](const Op& op) {
    const int inner = op.annotation.find(features), hidden = op.annotation.find("hidden");
    return inner >= 0 && hidden >= 0 &&
           op.annotation.reduces(which == Products::kInto ? hidden : inner, 0);
  });
  return pattern_in_blocks(blocks, ops);
}

Names ops_outside(const Graph& graph, const std::string& with) {
  const Blocked blocks(graph);
  Names paths;
  for (const Op& op : graph.ops()) {
    if (op.phase != Phase::kForward || blocks.holds(op) || !has_dims(op, with)) continue;
    if (std::find(paths.begin(), paths.end(), op.path) == paths.end()) paths.push_back(op.path);
  }
  return paths;
}

Names loss_ops(const Graph& graph) {
  const Blocked blocks(graph);
  if (blocks.named) return {"loss"};
  Names paths;
  // By tensor: whether it depends on a result of the loss.
  std::vector<bool> follows(graph.tensors().size());
  for (const Op& op : graph.ops()) {
    if (op.phase != Phase::kForward || blocks.holds(op)) continue;
    const bool begins = has_dims(op, "vocab") && op.annotation.find("hidden") < 0;
    const bool goes_on = std::any_of(op.inputs.begin(), op.inputs.end(),
                                     [&](TensorId input) { return follows[input.index()]; });
    if (!begins && !goes_on) continue;
    paths.push_back(op.path);
    for (const TensorId output : op.outputs) follows[output.index()] = true;
  }
  return paths;
}

std::string scope_with(const Graph& graph, const std::string& scope, const std::string& dim,
                       const std::string& layers) {
  if (!Blocked(graph).named) return ops_with(graph, dim, "experts", layers);
  std::string pattern = fmt::format("blocks.{}.{}", layers, scope);
  return has_dim(graph, pattern, dim) ? pattern : "";
}

Names scopes_with_vocab(const Graph& graph) {
  Names scopes;
  if (block_count(graph) == 0) {
    const Blocks blocks(graph);
    for (const Names* around : {&blocks.before(), &blocks.after()}) {
      std::copy_if(around->begin(), around->end(), std::back_inserter(scopes),
                   [&](const std::string& pattern) { return has_dim(graph, pattern, "vocab"); });
    }
    return scopes;
  }
  for (const char* top : {"embed", "head", "loss"}) {
    if (has_dim(graph, top, "vocab")) scopes.emplace_back(top);
  }
  return scopes;
}

}  // namespace tessera::recipes
