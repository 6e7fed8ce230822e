// Makes edits of a list of dims that treat a part of a block otherwise. A list of dims holds for
// all ops of a block: with {"experts", "batch"} the op that chooses experts is cut along `experts`,
// too. If another dim is better for some ops, an edit puts an entry for these ops first:
// {"moe.router/batch", "experts", "batch"} cuts the ops of the scope `moe.router` along the batch.
// The scopes of an op are its path in its block and each beginning of that path.
//
//   for (const DimList& list : scoped_edits(fold.graph, {"tp", 2, {"experts", "batch"}})) ...
#pragma once

#include <string_view>
#include <vector>

#include "tessera/search/choices/choice.h"

namespace tessera {

// Returns "moe.router" for the op "blocks.3.moe.router". For an op outside of blocks returns the
// whole path.
std::string_view path_in_block(const Op& op);
// Returns whether the op's path in its block is the scope, or begins with it and a dot.
bool is_in_scope(const Op& op, std::string_view scope);

// Returns edits of the axis's list, each with one more entry at its beginning: a scope and a dim of
// the list. Leaves out entries that change nothing, or the same as an earlier entry. Scopes of
// fewer words come first.
std::vector<std::vector<std::string>> scoped_edits(const Graph& forward, const ChoiceAxis& axis);

}  // namespace tessera
