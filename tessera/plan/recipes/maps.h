// Cuts the maps of convolutional networks in space and by channels, for recipes
// (docs/strategies/spatial.md sections 4 and 8). Convolutions are found by their kind and dims, so
// the names of ops and dims in the model do not matter.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/plan/recipes/writer.h"

namespace tessera::recipes {

// The axes that cut maps. The size of each axis is the recipe argument of the same name.
inline constexpr std::string_view kMapAxes = "d,h,w,channels,filters";

// `ChannelDims` are the op dims of a convolution that count channels; -1 if the convolution has no
// such dim.
struct ChannelDims {
  int in = -1;    // channels that are summed over: a dim of x and of the weight
  int out = -1;   // channels that are made: a dim of the weight and of y
  int both = -1;  // channels that are convolved one by one: a dim of x, the weight and y
};
bool is_convolution(const Op& op);
ChannelDims channel_dims(const Op& op);

// `CutMaps` records which forward ops are cut, and from which op on none is cut.
struct CutMaps {
  std::vector<bool> ops;  // by number of the op: whether it is cut
  int32_t end = 0;        // ops from this number on are not cut
  // Returns the forward ops after the last op that is cut, if they have the dim batch.
  std::vector<OpId> behind(const Graph& graph) const;
};
// Returns a CutMaps in which no op is cut yet and `end` is the first op that the argument `until`
// selects. Errors: the model has no convolutions; `until` selects no op.
Result<CutMaps> uncut_maps(const RecipeArguments& arguments, const Graph& graph);

// Cuts depth, height and width over the axes d, h and w, in all ops in which each piece gets the
// number of elements that the argument `least` asks for. Errors: the model lacks the dim of an
// axis; an axis has too many ranks for every map.
Status cut_space(PlanText& text, const Graph& graph, const RecipeArguments& arguments,
                 CutMaps& cut);

// Cuts channels: the dims that convolutions sum over are cut over the axis `channels`, and the dims
// that they make over the axis `filters`. Ops between convolutions that work on channels one by one
// are cut, too. If both axes have several ranks, the axes swap their roles from layer to layer. The
// channels that a layer makes are then cut over the axis over which the next layer sums. Error: no
// convolution has channels that can be cut.
Status cut_channels(PlanText& text, const Graph& graph, const RecipeArguments& arguments,
                    CutMaps& cut);

// Returns whether a piece of an op reads elements of its neighbours along this dim of the op.
bool has_halo(const OpDim& dim);
// Returns for each forward op the number of ops with halos along the dim on the longest path of ops
// that ends with this op, itself included. In a chain of such ops an op computes its halo if the
// argument `layers` does not divide its number. So in every `layers` of them all but the last
// compute the halo that the next one needs.
std::vector<int64_t> halos_before(const Graph& graph, const std::string& dim);

// Returns the arguments d, h, w, least, until and samples, then those of with_outer (parts.h), then
// tiles, rims, layers, channels, filters and keep. The argument `first` is moved to the front and
// must be given; "": no argument is moved.
std::vector<RecipeArgument> map_arguments(std::string_view first);

}  // namespace tessera::recipes
