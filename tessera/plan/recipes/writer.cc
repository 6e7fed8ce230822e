#include "tessera/plan/recipes/writer.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/text.h"
#include "tessera/plan/selector.h"

namespace tessera::recipes {
namespace {

using Row = std::vector<std::pair<std::string, std::string>>;  // key and value text

std::string quoted(std::string_view text) { return fmt::format("\"{}\"", text); }

// A list of entries with aligned columns; `rows` of one list have the same keys.
std::string list(std::string_view key, const std::vector<Row>& rows) {
  if (rows.empty()) return "";
  std::vector<size_t> width(rows[0].size(), 0);
  for (const Row& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      width[i] = std::max(width[i], row[i].first.size() + row[i].second.size() + 4);
    }
  }
  std::string out = fmt::format("{} = [\n", key);
  for (const Row& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      std::string cell = fmt::format("{} = {}", row[i].first, row[i].second);
      if (i + 1 < row.size()) cell += ",";
      line += i + 1 < row.size() ? fmt::format("{:<{}} ", cell, width[i]) : cell;
    }
    out += fmt::format("  {{ {} }},\n", line);
  }
  return out + "]\n";
}

}  // namespace

int64_t PlanText::size(std::string_view axis) const {
  for (const auto& [name, axis_size] : mesh) {
    if (name == axis) return axis_size;
  }
  return 1;
}

void PlanText::split(std::string ops, std::string dim, std::string over) {
  if (over.starts_with("time:") || has(over)) {
    splits.push_back({std::move(ops), std::move(dim), std::move(over)});
  }
}

void PlanText::store(std::string tensors, std::string over) {
  if (has(over)) stores.emplace_back(std::move(tensors), std::move(over));
}

std::string PlanText::str() const {
  std::string out;
  for (const auto& [name, size] : mesh) {
    if (size > 1) out += fmt::format("{}{} = {}", out.empty() ? "" : ", ", name, size);
  }
  out = out.empty() ? "mesh = {}\n" : fmt::format("mesh = {{ {} }}\n", out);
  if (micro_batches > 1) out += fmt::format("micro_batches = {}\n", micro_batches);
  if (!schedule.empty()) out += fmt::format("schedule = {}\n", quoted(schedule));
  std::vector<Row> rows;
  for (const SplitEntry& s : splits) {
    rows.push_back({{"ops", quoted(s.ops)}, {"dim", quoted(s.dim)}, {"over", quoted(s.over)}});
  }
  out += list("split", rows);
  rows.clear();
  for (const auto& [ops, at] : stages)
    rows.push_back({{"ops", quoted(ops)}, {"at", fmt::format("{}", at)}});
  out += list("stage", rows);
  rows.clear();
  for (const auto& [tensors, over] : stores)
    rows.push_back({{"tensors", quoted(tensors)}, {"over", quoted(over)}});
  out += list("store", rows);
  rows.clear();
  for (const auto& [tensors, with] : compressed) {
    rows.push_back(
        {{"tensors", quoted(tensors)}, {"with", quoted(with)}, {"error_feedback", "true"}});
  }
  return out + list("compress", rows);
}

int64_t size_of(const Graph& graph, const std::string& pattern, std::string_view dim) {
  const Glob glob(pattern);
  for (const Op& op : graph.ops()) {
    if (op.phase != Phase::kForward) continue;
    const int d = op.annotation.find(dim);
    if (d < 0) continue;
    for (size_t end = 0; end < op.path.size();) {  // as selectors match: any prefix
      end = std::min(op.path.find_first_of(".@", end + 1), op.path.size());
      if (glob.matches(std::string_view(op.path).substr(0, end))) {
        return op.annotation.dims[static_cast<size_t>(d)].size;
      }
    }
  }
  return 0;
}

bool has_dim(const Graph& graph, const std::string& pattern, std::string_view dim) {
  return size_of(graph, pattern, dim) > 0;
}

int64_t block_count(const Graph& graph) {
  int64_t count = 0;
  for (const Op& op : graph.ops()) {
    if (!op.path.starts_with("blocks.")) continue;
    const auto number = parse_int(std::string_view(op.path).substr(7, op.path.find('.', 7) - 7));
    if (number) count = std::max(count, *number + 1);
  }
  return count;
}

std::pair<std::vector<std::string>, std::vector<std::string>> around_blocks(const Graph& graph) {
  const auto in_block = [](const Op& op) {
    return op.phase == Phase::kForward && op.path.starts_with("blocks.");
  };
  const auto& ops = graph.ops();
  const auto first = std::find_if(ops.begin(), ops.end(), in_block);
  const auto last = std::find_if(ops.rbegin(), ops.rend(), in_block).base();
  std::vector<std::string> known{"blocks"};
  const auto tops = [&](auto begin, auto end) {
    std::vector<std::string> names;
    for (auto op = begin; op != end; ++op) {
      const std::string top = op->path.substr(0, op->path.find('.'));
      if (op->phase != Phase::kForward || std::find(known.begin(), known.end(), top) != known.end())
        continue;
      known.push_back(top);
      names.push_back(top);
    }
    return names;
  };
  std::vector<std::string> before = tops(ops.begin(), first);
  return {std::move(before), tops(last, ops.end())};
}

std::string alternatives(const std::vector<std::string>& patterns) {
  return patterns.size() == 1 ? patterns[0] : "{" + join(patterns, ",") + "}";
}

RecipeArgument number(std::string name, std::optional<std::string> otherwise, std::string meaning,
                      int64_t minimum) {
  return {std::move(name), std::move(otherwise), std::move(meaning), minimum, false};
}

RecipeArgument micro_batches_argument(std::optional<std::string> otherwise) {
  return number("micro_batches", std::move(otherwise),
                "pieces of the batch that go through the stages in turn");
}

RecipeArgument dp_argument(std::optional<std::string> otherwise) {
  return number("dp", std::move(otherwise), "replicas; each works on a piece of the batch");
}

RecipeArgument tp_argument(std::optional<std::string> otherwise) {
  return number("tp", std::move(otherwise),
                "ranks that share each block: attention heads, ffn and vocab");
}

RecipeArgument pp_argument(std::optional<std::string> otherwise) {
  return number("pp", std::move(otherwise), "pipeline stages");
}

}  // namespace tessera::recipes
