// How recipes cut the maps of convolutional networks: in space and by channels
// (docs/strategies/spatial.md sections 4 and 8). Convolutions are found by their dims, whatever the
// model calls them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/plan/recipes/writer.h"

namespace tessera::recipes {

// The axes that cut maps; each is an argument of the same name.
inline constexpr std::string_view kMapAxes = "d,h,w,channels,filters";

// The op dims of a convolution that count channels. -1: it has none of this sort.
struct ChannelDims {
  int in = -1;    // summed over: of x and of the weight
  int out = -1;   // made: of the weight and of y
  int both = -1;  // of x, the weight and y, where each channel is convolved by itself
};
bool is_convolution(const Op& op);
ChannelDims channel_dims(const Op& op);

// Which forward ops are cut, by number of the op, and where that ends.
struct CutMaps {
  std::vector<bool> ops;
  int32_t end = 0;  // no op from this number on is cut
  // The forward ops with a batch behind the last one that is cut.
  std::vector<OpId> behind(const Graph& graph) const;
};
// From the argument `until`. Errors: the model has no convolutions; `until` selects no op.
Result<CutMaps> uncut_maps(const RecipeArguments& arguments, const Graph& graph);

// Cuts depth, height and width of all ops that have enough of them over the axes d, h and w.
// Errors: an axis of a dim that the model lacks, or too long for every map.
Status cut_space(PlanText& text, const Graph& graph, const RecipeArguments& arguments,
                 CutMaps& cut);

// Cuts channels over the axes `channels` (what convolutions sum over) and `filters` (what they
// make), and between convolutions what works on channels one by one. With both axes the layers take
// turns: what one makes over an axis, the next one sums over it. Error: no convolution has channels
// that can be cut.
Status cut_channels(PlanText& text, const Graph& graph, const RecipeArguments& arguments,
                    CutMaps& cut);

// Do pieces of the op read what their neighbours hold along that dim?
bool has_halo(const OpDim& dim);
// How many ops with halos along the dim lie on the longest way to each forward op, itself included.
// Of `layers` of them, one behind the other, all but the last one make the halo of the next if those
// ops compute halos whose number `layers` does not divide.
std::vector<int64_t> halos_before(const Graph& graph, const std::string& dim);

// The arguments d, h, w, least, until and samples, those of parts.h, then tiles, rims, layers,
// channels, filters and keep.
// `first`: the one of them that comes first and has to be given; "": none.
std::vector<RecipeArgument> map_arguments(std::string_view first);

}  // namespace tessera::recipes
