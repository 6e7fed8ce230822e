// Dims for parts of a block. A list of dims holds for a whole block, so that the op that chooses
// experts is cut by experts because the experts are. Where another dim of the list is better for
// some ops, an edit puts it in front for these alone: {"moe.router/batch", "experts", "batch"} cuts
// the ops of the scope `moe.router` by the batch. The scope of an op is its path in its block, or
// the first words of that path.
//
//   for (const DimList& list : scoped_edits(fold.graph, {"tp", 2, {"experts", "batch"}})) ...
#pragma once

#include <string_view>
#include <vector>

#include "tessera/search/choice.h"

namespace tessera {

// Returns "moe.router" for "blocks.3.moe.router"; the whole path outside of blocks.
std::string_view path_in_block(const Op& op);
// Returns whether the op's path in its block is the scope, or lies inside it.
bool is_in_scope(const Op& op, std::string_view scope);

// Returns the axis's list with one more entry in front: for each scope of ops, each dim of the list
// that would change how some of them are cut. Wide scopes come first, each result once.
std::vector<std::vector<std::string>> scoped_edits(const Graph& forward, const ChoiceAxis& axis);

}  // namespace tessera
