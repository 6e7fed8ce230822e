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

// `ChannelDims` are the op dims of a convolution that count channels. -1: it has none of this sort.
struct ChannelDims {
  int in = -1;    // summed over; a dim of x and of the weight
  int out = -1;   // made; a dim of the weight and of y
  int both = -1;  // a dim of x, the weight and y, if each channel is convolved by itself
};
bool is_convolution(const Op& op);
ChannelDims channel_dims(const Op& op);

// `CutMaps` says which forward ops are cut, by number of the op, and where that ends.
struct CutMaps {
  std::vector<bool> ops;
  int32_t end = 0;  // no op from this number on is cut
  // Returns the forward ops with a batch behind the last op that is cut.
  std::vector<OpId> behind(const Graph& graph) const;
};
// Returns the maps that the argument `until` allows to cut, none of them cut yet. Errors: the model
// has no convolutions; `until` selects no op.
Result<CutMaps> uncut_maps(const RecipeArguments& arguments, const Graph& graph);

// Cuts depth, height and width of all ops that have enough of them over the axes d, h and w.
// Errors: an axis of a dim that the model lacks, or too long for every map.
Status cut_space(PlanText& text, const Graph& graph, const RecipeArguments& arguments,
                 CutMaps& cut);

// Cuts channels over the axes `channels` (the dims that convolutions sum over) and `filters` (the
// dims that they make), and between convolutions the ops that work on channels one by one. With
// both axes the layers take turns: a layer makes a dim over one axis, and the next layer sums over
// it. Error: no convolution has channels that can be cut.
Status cut_channels(PlanText& text, const Graph& graph, const RecipeArguments& arguments,
                    CutMaps& cut);

// Returns whether pieces of the op read what their neighbours hold along that dim.
bool has_halo(const OpDim& dim);
// Returns for each forward op the number of ops with halos along the dim on the longest way to it,
// itself included. An op whose number `layers` does not divide computes halos: so of each `layers`
// such ops, one behind the other, all but the last one make the halo of the next.
std::vector<int64_t> halos_before(const Graph& graph, const std::string& dim);

// Returns the arguments d, h, w, least, until and samples, those of parts.h, then tiles, rims,
// layers, channels, filters and keep. `first`: the argument that comes first and has to be given;
// "": none.
std::vector<RecipeArgument> map_arguments(std::string_view first);

}  // namespace tessera::recipes
