// Dims for parts of a block. A list of dims holds for a whole block, so that the op that chooses
// experts is cut by experts because the experts are. Where another dim of the list is better for some
// ops, an edit puts it in front for these alone: {"moe.router/batch", "experts", "batch"} cuts the
// ops of the scope `moe.router` by the batch. The scope of an op is its path in its block, or the
// first words of that.
//
//   for (const DimList& list : scoped_edits(fold.graph, {"tp", 2, {"experts", "batch"}})) ...
#pragma once

#include <string_view>
#include <vector>

#include "tessera/search/choice.h"

namespace tessera {

// "moe.router" of "blocks.3.moe.router"; the whole path outside of blocks.
std::string_view path_in_block(const Op& op);
// Is the op's path in its block the scope, or inside it?
bool is_in_scope(const Op& op, std::string_view scope);

// The axis's list with one more entry in front, for each scope of ops and each dim of the list by
// which other ops would be cut than are: wide scopes first, each result once.
std::vector<std::vector<std::string>> scoped_edits(const Graph& forward, const ChoiceAxis& axis);

}  // namespace tessera
