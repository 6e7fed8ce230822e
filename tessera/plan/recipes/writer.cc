#include "tessera/plan/recipes/writer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "tessera/base/text.h"

namespace tessera::recipes {
namespace {

std::string quoted(std::string_view text) { return fmt::format("\"{}\"", text); }

// Writes a list of entries with `in_a_line` entries on each line of the text. If this is 1, the
// keys are aligned in columns.
std::string list(std::string_view name, const std::vector<Entry>& entries, size_t in_a_line = 1) {
  if (entries.empty()) return "";
  Entry columns;  // each key with its longest value
  for (const Entry& entry : entries) {
    for (const auto& [key, value] : entry) {
      const auto column = std::find_if(columns.begin(), columns.end(),
                                       [&k = key](const auto& known) { return known.first == k; });
      if (column == columns.end()) {
        columns.emplace_back(key, value);
      } else if (column->second.size() < value.size()) {
        column->second = value;
      }
    }
  }
  std::string out = fmt::format("{} = [\n", name);
  for (size_t e = 0; e < entries.size(); ++e) {
    const Entry& entry = entries[e];
    std::string line;
    for (size_t i = 0; i < entry.size(); ++i) {
      const auto& [key, value] = entry[i];
      const auto column = std::find_if(columns.begin(), columns.end(),
                                       [&k = key](const auto& known) { return known.first == k; });
      const size_t width = in_a_line > 1 ? 0 : key.size() + column->second.size() + 4;
      const std::string cell = fmt::format("{} = {}", key, value);
      line += i + 1 < entry.size() ? fmt::format("{:<{}} ", cell + ",", width) : cell;
    }
    const bool ends = e % in_a_line + 1 == in_a_line || e + 1 == entries.size();
    out += fmt::format("{}{{ {} }},{}", e % in_a_line == 0 ? "  " : " ", line, ends ? "\n" : "");
  }
  return out + "]\n";
}

// Writes a single axis as a string, and several axes as a list.
std::string axes_value(const std::vector<std::string>& axes) {
  if (axes.size() == 1) return quoted(axes[0]);
  std::vector<std::string> texts;
  for (const std::string& axis : axes) texts.push_back(quoted(axis));
  return fmt::format("[{}]", join(texts, ", "));
}

// Returns the items of the list `over` that have more than one rank or step.
std::vector<std::string> real_axes(const PlanText& text, const std::string& over) {
  std::vector<std::string> axes;
  for (const std::string& axis : split_text(over, ',')) {
    if ((axis.starts_with("time:") && axis != "time:1") || text.has(axis)) axes.push_back(axis);
  }
  return axes;
}

}  // namespace

int64_t PlanText::size(std::string_view axis) const {
  for (const Axes* axes : {&mesh, &stage_axes}) {
    for (const auto& [name, axis_size] : *axes) {
      if (name == axis) return axis_size;
    }
  }
  return 1;
}

int64_t PlanText::product(const std::string& axes) const {
  int64_t ranks = 1;
  for (const std::string& axis : split_text(axes, ',')) ranks *= size(axis);
  return ranks;
}

void PlanText::split(const std::string& ops, const std::string& dim, const std::string& over,
                     const Rotation& rotation) {
  const std::vector<std::string> axes = real_axes(*this, over);
  const bool split_before = std::any_of(splits.begin(), splits.end(), [&](const Entry& entry) {
    return entry[1].second == quoted(dim);
  });
  if (ops.empty() || (axes.empty() && !split_before)) return;
  splits.push_back({{"ops", quoted(ops)}, {"dim", quoted(dim)}, {"over", axes_value(axes)}});
  if (rotation.skew.empty() || !over.starts_with("time:") || axes.empty()) return;
  splits.back().emplace_back("order", quoted("rotated"));
  splits.back().emplace_back("skew", axes_value(real_axes(*this, rotation.skew)));
}

void PlanText::pin(const std::string& ops, const std::string& axis, int64_t at) {
  if (!has(axis)) return;
  pins.push_back({{"ops", quoted(ops)}, {"axis", quoted(axis)}, {"at", fmt::format("{}", at)}});
}

void PlanText::rotate(const std::string& ops, const std::string& dim, const std::string& axes) {
  std::vector<std::string> skew = real_axes(*this, axes);
  if (skew.empty()) return;
  const int64_t steps = product(axes);
  for (std::string& axis : skew) axis.insert(0, "-");
  splits.push_back({{"ops", quoted(ops)},
                    {"dim", quoted(dim)},
                    {"over", quoted(fmt::format("time:{}", steps))},
                    {"order", quoted(skew.size() > 1 ? "nested" : "rotated")},
                    {"skew", axes_value(skew)}});
}

void PlanText::store(const std::string& tensors, const std::string& over) {
  if (real_axes(*this, over).empty()) return;
  for (Entry& entry : stores) {
    if (entry[0].second != quoted(tensors) || entry[1].first != "over") continue;
    std::vector<std::string> axes = split_text(entry[1].second, ',');
    for (std::string& axis : axes) axis = std::string(trim(axis));
    std::string all = join(axes, ",");
    std::erase_if(all, [](char c) { return c == '[' || c == ']' || c == '"'; });
    all += "," + over;
    entry[1].second = axes_value(real_axes(*this, all));
    return;
  }
  stores.push_back({{"tensors", quoted(tensors)}, {"over", axes_value(real_axes(*this, over))}});
}

void PlanText::recompute(const std::string& tensors, bool yes) {
  stores.push_back({{"tensors", quoted(tensors)}, {"recompute", yes ? "true" : "false"}});
}

void PlanText::rest_in(const std::string& tensors, const std::string& tier,
                       const std::string& fraction, const std::string& keep) {
  stores.push_back({{"tensors", quoted(tensors)}, {"tier", quoted(tier)}});
  if (fraction != "1") stores.back().emplace_back("fraction", fraction);
  if (!keep.empty()) stores.back().emplace_back("keep", quoted(keep));
}

void PlanText::keep(const std::string& tensors, const std::string& keep) {
  stores.push_back({{"tensors", quoted(tensors)}, {"keep", quoted(keep)}});
}

void PlanText::keep_over(const std::string& tensors, const std::string& axes) {
  const std::vector<std::string> real = real_axes(*this, axes);
  if (!real.empty())
    stores.push_back({{"tensors", quoted(tensors)}, {"keep_over", axes_value(real)}});
}

void PlanText::compute_in(const std::string& dtype) {
  if (dtype == "float32") return;
  precision = dtype;
  const auto kept = std::find_if(stores.begin(), stores.end(), [](const Entry& one) {
    return one[0].second == quoted("role:parameter") && one[1].first == "keep_over";
  });
  if (kept != stores.end())
    stores.push_back({{"tensors", quoted("*.cast")}, {"keep_over", (*kept)[1].second}});
  const auto over = [this](const char* tensors) {
    const auto entry = std::find_if(stores.begin(), stores.end(), [&](const Entry& one) {
      return one[0].second == quoted(tensors) && one[1].first == "over";
    });
    return entry == stores.end() ? "" : (*entry)[1].second;
  };
  const std::string axes = over("optimizer.*");
  if (axes.empty() || !over("role:parameter").empty()) return;
  stores.push_back({{"tensors", quoted("role:parameter")}, {"over", axes}});
  keep("*.cast", "step");
}

void PlanText::loop(std::string_view ops, std::string_view dim, std::string_view how) {
  loops.push_back(fmt::format("ops = {}, dim = {}, {}", quoted(ops), quoted(dim), how));
}

// Writes the order without axes of size 1, because the mesh in the text leaves these out.
std::string PlanText::device_order_line() const {
  std::vector<std::string> items;
  for (const std::string& part : split_text(device_order, ',')) {
    const std::string item(trim(part));
    const std::string axis = item.substr(0, item.find(':'));
    const auto known =
        std::ranges::find_if(mesh, [&](const auto& named) { return named.first == axis; });
    if (item.empty() || (known != mesh.end() && known->second == 1)) continue;
    items.push_back(parse_int(item) ? item : quoted(item));
  }
  return items.empty() ? "" : fmt::format("device_order = [{}]\n", join(items, ", "));
}

std::string PlanText::str() const {
  std::string axes, out;
  for (const std::string& note : notes) out += fmt::format("# {}\n", note);
  for (const auto& [name, size] : mesh) {
    // A plan with stages needs the axis pp even if its size is 1, as when slices of tokens are
    // stages of one place.
    const bool has_stages = name == "pp" && !stages.empty();
    if (size > 1 || has_stages)
      axes += fmt::format("{}{} = {}", axes.empty() ? "" : ", ", name, size);
  }
  out += axes.empty() ? "mesh = {}\n" : fmt::format("mesh = {{ {} }}\n", axes);
  out += device_order_line();
  if (!precision.empty()) out += fmt::format("precision = {{ compute = {} }}\n", quoted(precision));
  if (micro_batches > 1) out += fmt::format("micro_batches = {}\n", micro_batches);
  if (!place.empty()) out += fmt::format("place = [{}]\n", fmt::join(place, ", "));
  if (!schedule.empty()) out += fmt::format("schedule = {}\n", quoted(schedule));
  if (!prefetch.empty()) {
    out += fmt::format("prefetch = {{ units = {}, ahead = {} }}\n", quoted(prefetch), ahead);
  }
  if (!expand.empty()) out += fmt::format("expand = {}\n", quoted(expand));
  if (!reorder.empty()) {
    out += fmt::format("reorder = [ {{ dim = \"seq\", as = {}, pieces = {} }} ]\n", quoted(reorder),
                       pieces);
  }
  std::vector<Entry> placed;
  for (const auto& [ops, at, own, first_device] : stages) {
    placed.push_back({{"ops", quoted(ops)}, {"at", fmt::format("{}", at)}});
    if (own.empty()) continue;
    placed.back().emplace_back("mesh", own);
    if (!first_device.empty()) placed.back().emplace_back("devices", first_device);
  }
  constexpr size_t kManyStages = 16;  // above this number, three stages are written on a line
  const size_t in_a_line = placed.size() > kManyStages ? 3 : 1;
  out += list("split", splits) + list("pin", pins) + list("stage", placed, in_a_line) +
         list("store", stores);
  if (!loops.empty()) {
    out += "loop = [\n";
    for (const std::string& loop : loops) out += "  { " + loop + " },\n";
    out += "]\n";
  }
  return out + list("compress", compressed);
}

bool has_dim(const Graph& graph, const std::string& pattern, std::string_view dim) {
  return size_of(graph, pattern, dim) > 0;
}

namespace {

// Returns one more than the largest <i> in paths "<scope>.<i>.<...>"; 0 if there are none.
int64_t count_of(const Graph& graph, std::string_view scope) {
  int64_t count = 0;
  const size_t start = scope.size() + 1;
  for (const Op& op : graph.ops()) {
    const std::string_view path = op.path;
    if (!path.starts_with(scope) || path.size() <= start || path[start - 1] != '.') continue;
    const auto number = parse_int(path.substr(start, path.find('.', start) - start));
    if (number) count = std::max(count, *number + 1);
  }
  return count;
}

}  // namespace

int64_t block_count(const Graph& graph) { return count_of(graph, "blocks"); }
int64_t pass_count(const Graph& graph) { return count_of(graph, "pass"); }

std::pair<std::vector<std::string>, std::vector<std::string>> around_blocks(const Graph& graph) {
  const auto in_block = [](const Op& op) {
    return op.phase == Phase::kForward && op.path.starts_with("blocks.");
  };
  const auto& ops = graph.ops();
  const auto first = std::find_if(ops.begin(), ops.end(), in_block);
  const auto last = std::find_if(ops.rbegin(), ops.rend(), in_block).base();
  // The ops on one side of the blocks, by the first components of their paths.
  struct Side {
    std::vector<std::string> tops;
    std::map<std::string, std::vector<OpId>> ops;
  };
  const auto side = [&](auto begin, auto end) {
    Side out;
    for (auto op = begin; op != end; ++op) {
      const std::string top = op->path.substr(0, op->path.find('.'));
      if (op->phase != Phase::kForward || top == "blocks") continue;
      std::vector<OpId>& of_top = out.ops[top];
      if (of_top.empty()) out.tops.push_back(top);
      of_top.push_back(op->id);
    }
    return out;
  };
  const Side before = side(ops.begin(), first), after = side(last, ops.end());
  const auto patterns = [&](const Side& one, const Side& other) {
    std::vector<std::string> out;
    for (const std::string& top : one.tops) {
      if (!other.ops.contains(top)) {
        out.push_back(top);
        continue;
      }
      for (std::string& pattern : patterns_of(graph, one.ops.at(top)))
        out.push_back(std::move(pattern));
    }
    return out;
  };
  return {patterns(before, after), patterns(after, before)};
}

std::string name_in_block(const std::string& path) { return path.substr(path.find('.', 7) + 1); }

std::string by_scope(const std::vector<std::string>& names) {
  std::vector<std::string> scopes;                          // "attn.", in the order of `names`
  std::map<std::string, std::vector<std::string>> members;  // by scope: the last components, "q"
  for (const std::string& name : names) {
    const size_t after_dot = name.rfind('.') + 1;  // 0 if there is none
    std::vector<std::string>& inside = members[name.substr(0, after_dot)];
    if (inside.empty()) scopes.push_back(name.substr(0, after_dot));
    const std::string last = name.substr(after_dot);
    if (std::find(inside.begin(), inside.end(), last) == inside.end()) inside.push_back(last);
  }
  std::vector<std::string> patterns;
  for (const std::string& scope : scopes) {
    const std::vector<std::string>& inside = members[scope];
    if (scope.empty()) {
      patterns.insert(patterns.end(), inside.begin(), inside.end());
    } else {
      patterns.push_back(scope + alternatives(inside));
    }
  }
  return alternatives(patterns);
}

std::string alternatives(const std::vector<std::string>& patterns) {
  return patterns.size() == 1 ? patterns[0] : "{" + join(patterns, ",") + "}";
}

RecipeArgument number(std::string name, std::optional<std::string> otherwise, std::string meaning,
                      int64_t minimum) {
  return {std::move(name), std::move(otherwise), std::move(meaning), minimum, false, {}};
}

RecipeArgument choice(std::string name, std::string otherwise, std::vector<std::string> choices,
                      std::string meaning) {
  return {std::move(name), std::move(otherwise), std::move(meaning), 0, true, std::move(choices)};
}

RecipeArgument flag(std::string name, bool otherwise, std::string meaning) {
  return choice(std::move(name), otherwise ? "true" : "false", {"true", "false"},
                std::move(meaning));
}

RecipeArgument precision_argument() {
  RecipeArgument argument =
      choice("precision", "float32", {"float32", "bfloat16", "float16"},
             "what products and activations are in; parameters and their updates are in float32");
  argument.by_name = true;
  return argument;
}

RecipeArgument device_order_argument() {
  RecipeArgument argument{"device_order", "",
                          "axes from the slowest to the fastest on the machine, as "
                          "\"row:2,col:2\" for blocks of 2 x 2, or the device of each rank"};
  argument.is_text = argument.by_name = true;
  return argument;
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
