#include "tessera/plan/recipes/per_layer_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "tessera/base/text.h"
#include "tessera/plan/recipes/parts.h"

namespace tessera::recipes {
namespace {

// Is it a value of the argument `recompute`?
bool recomputes(std::string_view item) {
  const std::vector<std::string> known = recompute_argument().choices;
  const std::vector<std::string> words = split_text(std::string(item), '+');
  return std::all_of(words.begin(), words.end(), [&](const std::string& word) {
    return std::find(known.begin(), known.end(), word) != known.end();
  });
}

Status parse_item(std::string_view item, LayerRange& range) {
  const size_t digit = std::min(item.find_first_of("0123456789"), item.size());
  const std::string name(item.substr(0, digit));
  const auto value = parse_int(item.substr(digit));
  if (value && (name == "tp" || name == "dp") && *value >= 1) {
    if (*value > 1) range.degrees.emplace_back(name, *value);
  } else if (value && name == "zero" && *value <= 3) {
    range.zero = *value;
  } else if (item == "sp") {
    range.sequence_shard = true;
  } else if (item == "recompute" || recomputes(item)) {
    range.recompute = item == "recompute" ? "full" : std::string(item);
  } else {
    return invalid_input(
        fmt::format("spec: expected tp<N>, dp<N>, zero<0-3>, sp, recompute, selective or modules "
                    "as norm+act in '{}', "
                    "found '{}'",
                    range.text, item));
  }
  return {};
}

}  // namespace

Result<std::vector<LayerRange>> parse_layer_ranges(const std::string& spec, int64_t layers) {
  std::vector<LayerRange> ranges;
  for (const std::string& text : split_text(spec, ';')) {
    LayerRange range{.text = std::string(trim(text))};
    const std::vector<std::string> parts = split_text(range.text, ':');
    const std::vector<std::string> ends = split_text(parts[0], '-');
    const auto first = parse_int(ends.front()), last = parse_int(ends.back());
    if (parts.size() != 2 || ends.size() > 2 || !first || !last) {
      return invalid_input(
          fmt::format("spec: expected 'first-last:tp2,dp2,...', found '{}'", range.text));
    }
    range.first = *first, range.last = *last;
    const int64_t next = ranges.empty() ? 0 : ranges.back().last + 1;
    if (range.first != next || range.last < next) {
      return invalid_input(fmt::format("spec: expected a range that starts at layer {}, found '{}'",
                                       next, range.text));
    }
    for (const std::string& item : split_text(parts[1], ','))
      TESSERA_TRY_VOID(parse_item(trim(item), range));
    ranges.push_back(std::move(range));
  }
  if (ranges.back().last + 1 == layers) return ranges;
  return invalid_input(
      fmt::format("spec: expected layers 0-{}, found layers 0-{}", layers - 1, ranges.back().last));
}

Result<Axes> common_axes(const std::vector<LayerRange>& ranges) {
  std::set<int64_t> strides{1};
  int64_t ranks = 0;
  for (const LayerRange& range : ranges) {
    int64_t stride = 1;
    for (const auto& [name, degree] : range.degrees) strides.insert(stride *= degree);
    if (ranks == 0) ranks = stride;
    if (stride == ranks) continue;
    return invalid_input(fmt::format("spec: '{}' has {} ranks, '{}' has {}", ranges[0].text, ranks,
                                     range.text, stride));
  }
  Axes axes;
  for (auto it = strides.begin(); std::next(it) != strides.end(); ++it) {
    if (*std::next(it) % *it != 0) {
      return invalid_input(fmt::format(
          "spec: no axes make groups of both {} and {} neighbours: one must divide the other", *it,
          *std::next(it)));
    }
    axes.insert(axes.begin(), {"", *std::next(it) / *it});
  }
  for (size_t i = 0; i < axes.size(); ++i)
    axes[i].first = std::string(1, static_cast<char>('a' + i));
  return axes;
}

std::pair<std::string, std::string> axes_of(const LayerRange& range, const Axes& axes) {
  std::vector<std::string> tp, dp;
  auto axis = axes.rbegin();
  for (const auto& [name, degree] : range.degrees) {
    std::vector<std::string>& kind = name == "tp" ? tp : dp;
    for (int64_t rest = degree; rest > 1; rest /= axis++->second)
      kind.insert(kind.begin(), axis->first);
  }
  return {join(tp, ","), join(dp, ",")};
}

std::string LayerRange::layers() const {
  return first == last ? fmt::format("{}", first) : fmt::format("[{}-{}]", first, last);
}

int64_t LayerRange::degree(const std::string& name) const {
  int64_t product = 1;
  for (const auto& [kind, size] : degrees) product *= kind == name ? size : 1;
  return product;
}

}  // namespace tessera::recipes
