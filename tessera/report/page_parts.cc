// The critical path and the plan beside the graph, each with what repeats by layer as one row.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <tuple>

#include "tessera/base/text.h"
#include "tessera/report/page_data.h"

namespace tessera::page {

Detail Detail::of(int64_t plans, double factor) {
  Detail detail;
  const auto scale = [&](int64_t most, int64_t least) {
    const double share = static_cast<double>(most) * factor / static_cast<double>(plans);
    return std::max(least, static_cast<int64_t>(share));
  };
  detail.instructions = scale(detail.instructions, 0);
  detail.merged = scale(detail.merged, 200);
  detail.samples = std::min<int64_t>(detail.samples, scale(3 * detail.samples, 50));
  detail.live = std::min<int64_t>(detail.live, scale(3 * detail.live, 4));
  detail.path = std::min<int64_t>(detail.path, scale(3 * detail.path, 5));
  detail.ops = scale(detail.ops, 50);
  detail.shares = scale(detail.shares, 50);
  return detail;
}

int32_t Labels::operator()(const std::string& text) {
  const auto [found, is_new] = index_.emplace(text, static_cast<int32_t>(list_.size()));
  if (is_new) list_.push_back(text);
  return found->second;
}

NumberedPath::NumberedPath(const std::string& path) : prefix(path) {
  for (size_t from = 0; from < path.size();) {
    const size_t to = std::min(path.find('.', from), path.size());
    const char* const end = path.data() + to;
    int64_t value = 0;
    const auto [stop, error] = std::from_chars(path.data() + from, end, value);
    if (error == std::errc() && stop == end && path[from] != '-') {
      prefix = path.substr(0, from);
      suffix = path.substr(to);
      number = value;
      return;
    }
    from = to + 1;
  }
}

std::string NumberedPath::pattern() const { return number < 0 ? prefix : prefix + "*" + suffix; }

// ---- critical path
namespace {

struct PathPart {
  Spent what = Spent::kCompute;
  std::string label;
  int64_t steps = 0, ns = 0;
  std::set<int32_t> ranks;
};

std::vector<PathPart> path_parts(const Simulation& simulation) {
  std::map<std::pair<Spent, std::string>, PathPart> parts;
  for (const PathStep& step : simulation.critical_path) {
    const std::string label = NumberedPath(step.label).pattern();
    PathPart& part =
        parts.try_emplace({step.what, label}, PathPart{step.what, label, 0, 0, {}}).first->second;
    part.steps += step.times;
    part.ns += (nanoseconds(step.end_s) - nanoseconds(step.start_s)) * step.times;
    part.ranks.insert(step.rank);
  }
  std::vector<PathPart> out;
  for (auto& [key, part] : parts) out.push_back(std::move(part));
  std::stable_sort(out.begin(), out.end(),
                   [](const PathPart& a, const PathPart& b) { return a.ns > b.ns; });
  return out;
}

}  // namespace

void add_path(const Simulation& simulation, const Detail& detail, OrderedJson& run) {
  const std::vector<PathPart> parts = path_parts(simulation);
  std::map<Spent, int64_t> sums;
  OrderedJson listed = OrderedJson::array(), spent = OrderedJson::array();
  int64_t rest_ns = 0, steps = 0;
  for (const PathPart& part : parts) {
    sums[part.what] += part.ns;
    steps += part.steps;
    if (std::ssize(listed) < detail.path) {
      listed.push_back({spent_name(part.what), part.label, part.steps, part.ns, part.ranks});
    } else {
      rest_ns += part.ns;
    }
  }
  for (size_t i = 0; i < kSpent; ++i) spent.push_back(sums[static_cast<Spent>(i)]);
  run["path"] = {{"steps", steps},
                 {"spent_ns", std::move(spent)},
                 {"more_parts", std::ssize(parts) - std::ssize(listed)},
                 {"more_ns", rest_ns}};
  run["path"]["parts"] = std::move(listed);
}

// ---- plan beside graph
namespace {

struct OpRow {
  std::string prefix, suffix, kind, splits;
  int32_t stage = 0;
  std::vector<int> lines;  // of the plan
  friend auto operator<=>(const OpRow&, const OpRow&) = default;
};

OpRow op_row(const ResolvedPlan& plan, const Op& op) {
  const OpPlan& op_plan = plan.ops[op.id.index()];
  const Mesh& mesh = plan.stages[op_plan.stage.index()].mesh;
  const NumberedPath path(op.path);
  OpRow row{path.prefix, path.suffix, op.kind, "", op_plan.stage.value, {}};
  for (size_t d = 0; d < op_plan.dims.size(); ++d) {
    const DimSplit& split = op_plan.dims[d];
    if (!split.split()) continue;
    std::string over;
    for (const AxisId axis : split.axes) {
      over += fmt::format("{}{}={}", over.empty() ? "" : ",", mesh.axis(axis).name,
                          mesh.axis(axis).size);
    }
    if (split.steps > 1) over += fmt::format("{}time:{}", over.empty() ? "" : ",", split.steps);
    if (split.rims) over += over.empty() ? "time:rims" : ",time:rims";
    row.splits +=
        fmt::format("{}{}/{}", row.splits.empty() ? "" : "  ", op.annotation.dims[d].name, over);
    if (split.entry >= 0)
      row.lines.push_back(plan.plan.splits[static_cast<size_t>(split.entry)].line);
  }
  if (op_plan.stage_entry >= 0)
    row.lines.push_back(plan.plan.stages[static_cast<size_t>(op_plan.stage_entry)].line);
  std::sort(row.lines.begin(), row.lines.end());
  row.lines.erase(std::unique(row.lines.begin(), row.lines.end()), row.lines.end());
  return row;
}

// Returns numbers as ranges: {0, 1, 2, 7} is [[0, 2], [7, 7]].
OrderedJson ranges_json(const std::set<int64_t>& numbers) {
  std::vector<std::pair<int64_t, int64_t>> ranges;
  for (const int64_t number : numbers) {
    if (!ranges.empty() && ranges.back().second + 1 == number) {
      ranges.back().second = number;
    } else {
      ranges.emplace_back(number, number);
    }
  }
  return ranges;
}

}  // namespace

void add_ops(const Lowering& lowering, const Detail& detail, OrderedJson& run) {
  struct Layers {
    size_t first = 0;
    std::set<int64_t> numbers;
  };
  std::map<OpRow, Layers> rows;
  size_t position = 0;
  for (const Op& op : lowering.graph().ops()) {
    Layers& layers =
        rows.try_emplace(op_row(lowering.plan(), op), Layers{position++, {}}).first->second;
    if (const NumberedPath path(op.path); path.number >= 0) layers.numbers.insert(path.number);
  }
  std::vector<std::pair<size_t, const OpRow*>> order;
  for (const auto& [row, layers] : rows) order.emplace_back(layers.first, &row);
  std::sort(order.begin(), order.end());
  OrderedJson out = OrderedJson::array();
  for (const auto& [first, row] : order) {
    if (std::ssize(out) == detail.ops) break;
    out.push_back({row->prefix, ranges_json(rows.at(*row).numbers), row->suffix, row->kind,
                   row->stage, row->splits, row->lines});
  }
  run["ops"] = std::move(out);
  run["more_ops"] = std::ssize(order) - std::ssize(run["ops"]);
}

}  // namespace tessera::page
