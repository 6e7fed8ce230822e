// Gives ops the paths for which recipes look. A program says in which module each op was called, so
// the list of modules that holds most ops gives the blocks: an op of `transformer.h.3.attn.c_attn`
// becomes one of blocks.3. In a block, ops with the dims of attention are in the scope attn (those
// that compare queries with keys in attn.core), ops with the inner width in mlp; outside, ops with
// the vocabulary are in embed or head. The rest of a path stays as the module has it.
//
// Parameters keep their names in the module.
#pragma once

#include "tessera/graph/graph.h"

namespace tessera::pt2 {

// Returns the graph with such paths if it then keeps the contract (models/contract.h) as well as
// before. If not, the paths stay as they are, but no op is called blocks.<i>: recipes then find
// blocks by their computation (graph/repeat.h).
Graph with_block_paths(Graph graph);

}  // namespace tessera::pt2
