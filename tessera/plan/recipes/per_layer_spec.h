// The text of how each range of layers is parallelised, and the mesh that all ranges share.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tessera/plan/recipes/writer.h"

namespace tessera::recipes {

// "0-3:tp2,dp2,zero3,recompute". Degrees are listed from neighbouring ranks outwards.
struct LayerRange {
  std::string text;
  // The ops that read first and last around the blocks may have ranges of their own, called "embed"
  // and "head".
  enum class Of : uint8_t { kEmbed, kLayers, kHead } of = Of::kLayers;
  int64_t first = 0, last = 0;                             // of kLayers
  std::vector<std::pair<std::string, int64_t>> degrees{};  // a name of degree_names(); above 1
  int64_t zero = 0;                                        // stage, over dp, cp and ulysses
  bool sequence_shard = false;
  std::string recompute = "none";

  std::string layers() const;  // a pattern of block numbers
  int64_t degree(const std::string& name) const;
};

// Returns tp (heads, ffn and vocab), dp (the batch), cp (tokens, with rings of keys) and ulysses
// (tokens, with all-to-alls to heads).
const std::vector<std::string>& degree_names();

// Reads "RANGE;RANGE;...": the ranges name every one of `layers` layers once, in order, on as many
// ranks.
Result<std::vector<LayerRange>> parse_layer_ranges(const std::string& spec, int64_t layers);

// Returns axes a, b, ... whose products are every range's degrees: their common refinement,
// outermost first. Returns an error if there is none (groups of 2 and of 3 neighbours).
Result<Axes> common_axes(const std::vector<LayerRange>& ranges);

// Returns the axes of a range's degree, with commas between, outermost first.
std::string axes_of(const LayerRange& range, const Axes& axes, const std::string& degree);

}  // namespace tessera::recipes
