// The text that says how each range of layers is parallelised, and the mesh that all ranges share.
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
  // What the blocks read first and what reads them last may have ranges of their own, called
  // "embed" and "head".
  enum class Of : uint8_t { kEmbed, kLayers, kHead } of = Of::kLayers;
  int64_t first = 0, last = 0;                             // of kLayers
  std::vector<std::pair<std::string, int64_t>> degrees{};  // a name of degree_names(); above 1
  int64_t zero = 0;                                        // stage, over dp, cp and ulysses
  bool sequence_shard = false;
  std::string recompute = "none";

  std::string layers() const;  // a pattern of block numbers
  int64_t degree(const std::string& name) const;
};

// tp: heads, ffn and vocab; dp: the batch; cp: tokens, with rings of keys; ulysses: tokens, with
// all-to-alls to heads.
const std::vector<std::string>& degree_names();

// "RANGE;RANGE;...", which name every one of `layers` layers once, in order, on as many ranks.
Result<std::vector<LayerRange>> parse_layer_ranges(const std::string& spec, int64_t layers);

// Axes a, b, ... that every range's degrees are products of: their common refinement, outermost
// first. An Error if one does not exist (groups of 2 and of 3 neighbours).
Result<Axes> common_axes(const std::vector<LayerRange>& ranges);

// The axes of a range's degree, with commas between, outermost first.
std::string axes_of(const LayerRange& range, const Axes& axes, const std::string& degree);

}  // namespace tessera::recipes
