// Reads the text that says how each range of layers is parallelised, and finds a mesh for
// all ranges.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tessera/plan/recipes/writer.h"

namespace tessera::recipes {

// A `LayerRange` is one range with its degrees of parallelism: "0-3:tp2,dp2,zero3,recompute". The
// first degree is that of neighbouring ranks, the last one that of the ranks farthest apart.
struct LayerRange {
  std::string text;
  // Whether the range is a range of layers, the ops before the blocks ("embed") or the ops after
  // the blocks ("head").
  enum class Of : uint8_t { kEmbed, kLayers, kHead } of = Of::kLayers;
  int64_t first = 0, last = 0;  // first and last layer, for kLayers
  // (name of degree_names(), degree above 1)
  std::vector<std::pair<std::string, int64_t>> degrees{};
  int64_t zero = 0;  // stage of ZeRO, over dp, cp and ulysses
  bool sequence_shard = false;
  std::string recompute = "none";

  std::string layers() const;  // a pattern of block numbers
  int64_t degree(const std::string& name) const;
};

// Returns the names of degrees: tp (cuts heads, ffn and vocab), dp (cuts the batch), cp (cuts
// tokens, with rings of keys) and ulysses (cuts tokens, with all-to-alls to heads in attention).
const std::vector<std::string>& degree_names();

// Reads "RANGE;RANGE;...". The ranges must name each of the `layers` layers once, in order, and all
// must have the same number of ranks.
Result<std::vector<LayerRange>> parse_layer_ranges(const std::string& spec, int64_t layers);

// Returns axes a, b, ..., outermost first, such that each degree of each range is the product of
// some neighbouring axes. Returns an error if no such axes exist, for example if the first degree
// is 2 in one range and 3 in another.
Result<Axes> common_axes(const std::vector<LayerRange>& ranges);

// Returns the axes (of common_axes) whose product is the degree of the range, with commas between,
// outermost first.
std::string axes_of(const LayerRange& range, const Axes& axes, const std::string& degree);

}  // namespace tessera::recipes
