#include "tessera/search/choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "tessera/base/text.h"
#include "tessera/graph/kinds.h"
#include "tessera/plan/recipes/parts.h"

namespace tessera {
namespace {

const std::string kBatch = "batch";

bool may_cut(const Op& op, const OpDim& dim) {
  if (dim.literal() || dim.size <= 1) return false;
  if (dim.mark != Mark::kFrozen) return true;
  if (dim.hidden || op.info == nullptr || op.info->expandable == nullptr || !op.info->expand)
    return false;
  const auto names = op.info->expandable(op);
  return std::find(names.begin(), names.end(), dim.name) != names.end();
}

// One pattern for the ops. Where the model's blocks have numbers and the same ops of all blocks are
// meant, the numbers are a wildcard.
std::string pattern_of(const Graph& forward, const std::vector<OpId>& ops) {
  std::map<std::string, std::set<int>> blocks_of;  // by name in the block
  std::map<std::string, std::set<int>> all_of;
  std::vector<std::string> names;
  std::vector<OpId> others;
  for (const OpId id : ops) {
    const Op& op = forward.op(id);
    if (op.block < 0 || !op.path.starts_with("blocks.")) {
      others.push_back(id);
      continue;
    }
    const std::string name = recipes::name_in_block(op.path);
    if (blocks_of[name].empty()) names.push_back(name);
    blocks_of[name].insert(op.block);
  }
  for (const Op& op : forward.ops()) {
    if (op.block >= 0 && op.path.starts_with("blocks."))
      all_of[recipes::name_in_block(op.path)].insert(op.block);
  }
  const bool uniform = std::all_of(names.begin(), names.end(), [&](const std::string& name) {
    return blocks_of[name] == all_of[name];
  });
  std::vector<std::string> patterns;
  if (!uniform) {
    patterns = recipes::patterns_of(forward, ops);
  } else {
    if (!others.empty()) patterns = recipes::patterns_of(forward, others);
    if (!names.empty()) patterns.push_back("blocks.*." + recipes::by_scope(names));
  }
  return recipes::alternatives(patterns);
}

void write_splits(recipes::PlanText& text, const Choice& choice, const Graph& forward) {
  // By dim and axes, the ops that are cut so; in the order in which the graph meets them.
  std::vector<std::pair<std::string, std::string>> order;
  std::map<std::pair<std::string, std::string>, std::vector<OpId>> cut;
  std::map<std::string, size_t> having;  // ops that may be cut along the dim
  for (const Op& op : forward.ops()) {
    if (op.phase != Phase::kForward) continue;
    for (const OpDim& dim : op.annotation.dims) {
      if (may_cut(op, dim)) ++having[dim.name];
    }
    std::map<std::string, std::string> over;
    for (const ChoiceAxis& axis : choice.axes) {
      if (axis.size == 1) continue;
      const std::string dim = dim_to_cut(op, axis);
      if (!dim.empty()) over[dim] += (over[dim].empty() ? "" : ",") + axis.name;
    }
    for (const auto& entry : over) {
      if (!cut.contains(entry)) order.push_back(entry);
      cut[entry].push_back(op.id);
    }
  }
  for (const auto& entry : order) {
    const std::vector<OpId>& ops = cut[entry];
    const bool all = ops.size() == having[entry.first];
    text.split(all ? "*" : pattern_of(forward, ops), entry.first, entry.second);
  }
}

Status write_stages(recipes::PlanText& text, const Choice& choice, const Graph& forward,
                    const std::vector<FoldUnit>& units) {
  if (choice.stages * choice.chunks == 1) {
    if (choice.micro_batches > 1) text.schedule = choice.schedule;
    return {};
  }
  text.schedule = choice.schedule;
  for (size_t s = 0; s < choice.cuts.size(); ++s) {
    const size_t end = s + 1 < choice.cuts.size() ? choice.cuts[s + 1] : units.size();
    if (choice.cuts[s] >= end) {
      return invalid_input(fmt::format("a pipeline of {} stages needs as many units, found {}",
                                       choice.cuts.size(), units.size()));
    }
    std::vector<OpId> ops;
    for (size_t u = choice.cuts[s]; u < end; ++u)
      ops.insert(ops.end(), units[u].ops.begin(), units[u].ops.end());
    text.stages.push_back(
        {recipes::alternatives(recipes::patterns_of(forward, ops)), static_cast<int64_t>(s), ""});
  }
  return {};
}

}  // namespace

std::string dim_to_cut(const Op& op, const ChoiceAxis& axis) {
  for (const std::string& name : axis.dims) {
    const int d = op.annotation.find(name);
    if (d >= 0 && may_cut(op, op.annotation.dims[static_cast<size_t>(d)])) return name;
  }
  return "";
}

int64_t Choice::ranks() const {
  int64_t out = stages;
  for (const ChoiceAxis& axis : axes) out *= axis.size;
  return out;
}

int64_t Choice::replicas() const {
  int64_t out = 1;
  for (const ChoiceAxis& axis : axes) {
    if (std::find(axis.dims.begin(), axis.dims.end(), kBatch) != axis.dims.end()) out *= axis.size;
  }
  return out;
}

std::string Choice::str() const {
  std::vector<std::string> parts;
  if (stages > 1) parts.push_back(fmt::format("pp={}", stages));
  for (const ChoiceAxis& axis : axes) {
    if (axis.size > 1)
      parts.push_back(fmt::format("{}={}[{}]", axis.name, axis.size, join(axis.dims, ",")));
  }
  if (parts.empty()) parts.emplace_back("one device");
  if (stages > 1 || micro_batches > 1) parts.push_back(schedule);
  if (chunks > 1) parts.push_back(fmt::format("chunks={}", chunks));
  if (micro_batches > 1) parts.push_back(fmt::format("micro_batches={}", micro_batches));
  if (sharded > 0) parts.push_back(fmt::format("sharded={}", sharded));
  if (recompute != "none") parts.push_back("recompute=" + recompute);
  return join(parts, " ");
}

std::vector<std::string> dims_to_cut(const Graph& forward, double share) {
  std::map<std::string, double> work;
  double all = 0;
  for (const Op& op : forward.ops()) {
    if (op.phase != Phase::kForward) continue;
    double elements = 1;
    for (const OpDim& dim : op.annotation.dims) elements *= static_cast<double>(dim.size);
    all += elements;
    for (const OpDim& dim : op.annotation.dims) {
      if (may_cut(op, dim)) work[dim.name] += elements;
    }
  }
  std::vector<std::pair<double, std::string>> order;
  for (const auto& [name, elements] : work) {
    if (elements >= share * all) order.emplace_back(-elements, name);
  }
  std::sort(order.begin(), order.end());
  std::vector<std::string> out;
  for (const auto& [elements, name] : order) out.push_back(name);
  return out;
}

Result<std::string> write_plan(const Choice& choice, const Graph& forward,
                               const std::vector<FoldUnit>& units, const std::string& heading) {
  recipes::PlanText text;
  text.mesh.emplace_back("pp", choice.stages);
  std::string over_batch;
  for (const ChoiceAxis& axis : choice.axes) {
    text.mesh.emplace_back(axis.name, axis.size);
    const bool cuts_batch =
        std::find(axis.dims.begin(), axis.dims.end(), kBatch) != axis.dims.end();
    if (cuts_batch && axis.size > 1) over_batch += (over_batch.empty() ? "" : ",") + axis.name;
  }
  text.micro_batches = choice.micro_batches;
  write_splits(text, choice, forward);
  TESSERA_TRY_VOID(write_stages(text, choice, forward, units));
  TESSERA_TRY_VOID(recipes::recompute(text, forward, choice.recompute));
  if (!over_batch.empty()) {
    recipes::zero(text, choice.sharded, over_batch);
    // What rests in shards is gathered while the block before computes.
    if (choice.sharded >= 3 && recipes::block_count(forward) > 1) text.prefetch = "blocks.*";
  }
  text.compute_in(std::string(dtype_name(choice.compute)));
  return fmt::format("# {}\n{}", heading, text.str());
}

}  // namespace tessera
