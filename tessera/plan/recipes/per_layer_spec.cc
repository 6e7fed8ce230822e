#include "tessera/plan/recipes/per_layer_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "tessera/base/text.h"
#include "tessera/plan/recipes/parts.h"

namespace tessera::recipes {
namespace {

// Returns whether the item is a value of the argument `recompute`.
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
  const std::vector<std::string>& names = degree_names();
  if (value && *value >= 1 && std::find(names.begin(), names.end(), name) != names.end()) {
    if (*value > 1) range.degrees.emplace_back(name, *value);
  } else if (value && name == "zero" && *value <= 3) {
    range.zero = *value;
  } else if (item == "sp") {
    range.sequence_shard = true;
  } else if (item == "recompute" || recomputes(item)) {
    range.recompute = item == "recompute" ? "full" : std::string(item);
  } else {
    return invalid_input(
        fmt::format("spec: expected tp<N>, dp<N>, cp<N>, ulysses<N>, zero<0-3>, sp, recompute, "
                    "selective or modules as norm+act in '{}', found '{}'",
                    range.text, item));
  }
  if (range.of == LayerRange::Of::kLayers || range.recompute == "none") return {};
  return invalid_input(fmt::format(
      "spec: expected no recomputation around the blocks, found '{}' in '{}'", item, range.text));
}

// Reads the layers of a range, which follow layer `last`.
Status parse_layers(const std::string& layers, int64_t last, LayerRange& range) {
  const std::vector<std::string> ends = split_text(layers, '-');
  const auto first = parse_int(ends.front()), end = parse_int(ends.back());
  if (ends.size() > 2 || !first || !end) {
    return invalid_input(
        fmt::format("spec: expected 'first-last:tp2,dp2,...', found '{}'", range.text));
  }
  range.first = *first, range.last = *end;
  if (range.first == last + 1 && range.last > last) return {};
  return invalid_input(fmt::format("spec: expected a range that starts at layer {}, found '{}'",
                                   last + 1, range.text));
}

}  // namespace

const std::vector<std::string>& degree_names() {
  static const std::vector<std::string> names{"tp", "dp", "cp", "ulysses"};
  return names;
}

Result<std::vector<LayerRange>> parse_layer_ranges(const std::string& spec, int64_t layers) {
  const std::vector<std::string> texts = split_text(spec, ';');
  std::vector<LayerRange> ranges;
  int64_t last = -1;
  for (size_t r = 0; r < texts.size(); ++r) {
    LayerRange range{.text = std::string(trim(texts[r]))};
    const std::vector<std::string> parts = split_text(range.text, ':');
    if (parts.size() != 2) {
      return invalid_input(
          fmt::format("spec: expected 'first-last:tp2,dp2,...', found '{}'", range.text));
    }
    if (parts[0] == "embed" && r == 0) {
      range.of = LayerRange::Of::kEmbed;
    } else if (parts[0] == "head" && r + 1 == texts.size()) {
      range.of = LayerRange::Of::kHead;
    } else {
      TESSERA_TRY_VOID(parse_layers(parts[0], last, range));
      last = range.last;
    }
    for (const std::string& item : split_text(parts[1], ','))
      TESSERA_TRY_VOID(parse_item(trim(item), range));
    ranges.push_back(std::move(range));
  }
  if (last + 1 == layers) return ranges;
  return invalid_input(
      fmt::format("spec: expected layers 0-{}, found {}", layers - 1,
                  last < 0 ? std::string("none") : fmt::format("layers 0-{}", last)));
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

std::string axes_of(const LayerRange& range, const Axes& axes, const std::string& degree) {
  std::vector<std::string> chosen;
  auto axis = axes.rbegin();
  for (const auto& [name, size] : range.degrees) {
    for (int64_t rest = size; rest > 1; rest /= axis++->second) {
      if (name == degree) chosen.insert(chosen.begin(), axis->first);
    }
  }
  return join(chosen, ",");
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
