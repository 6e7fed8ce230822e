// Where the blocks of a model are, and patterns that select ops.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "tessera/base/text.h"
#include "tessera/graph/repeat.h"
#include "tessera/plan/recipes/writer.h"

namespace tessera::recipes {
namespace {

using Names = std::vector<std::string>;

// Paths by their components.
struct Scope {
  std::map<std::string, Scope> below;
  Names order;      // of `below`, as the ops stand
  bool all = true;  // every op here and below is chosen
  bool any = false;
};

void add(Scope& scope, std::string_view path, bool chosen) {
  scope.all = scope.all && chosen;
  scope.any = scope.any || chosen;
  if (path.empty()) return;
  const size_t dot = path.find('.');
  const std::string name(path.substr(0, dot));
  if (!scope.below.contains(name)) scope.order.push_back(name);
  add(scope.below[name], dot == std::string_view::npos ? "" : path.substr(dot + 1), chosen);
}

// "3" and "4", "5" as "[3-5]": neighbours of a list of names.
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
    if (!one.any) continue;
    if (one.all) {
      whole.push_back(name);
      continue;
    }
    flush();
    const Names inside = patterns_below(one);
    // Without any below: an op whose path is a prefix of others' paths.
    out.push_back(inside.empty() ? name : name + "." + alternatives(inside));
  }
  flush();
  return out;
}

}  // namespace

Names patterns_of(const Graph& graph, const std::vector<OpId>& ops) {
  std::vector<bool> chosen(graph.ops().size());
  for (const OpId op : ops) chosen[op.index()] = true;
  Scope top;
  for (const Op& op : graph.ops()) {
    if (op.phase == Phase::kForward) add(top, op.path, chosen[op.id.index()]);
  }
  return patterns_below(top);
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

}  // namespace tessera::recipes
