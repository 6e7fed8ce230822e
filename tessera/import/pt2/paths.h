// Gives ops the paths for which recipes look. A program says in which module each op was called.
// The list of modules that has the most ops is taken as the model's blocks, so an op of
// `transformer.h.3.attn.c_attn` becomes an op of blocks.3. In a block, ops with dim kv get the
// scope attn.core, other ops with dim heads get attn, and other ops with dim ffn get mlp. Outside
// the blocks, ops with dim vocab get embed or head. The rest of a path is the module's path.
//
// Parameters keep their names in the module.
#pragma once

#include "tessera/graph/graph.h"

namespace tessera::pt2 {

// Returns the graph with such paths, unless it then breaks more of the contract (models/contract.h)
// than before. In that case the paths remain as they are, but an op path `blocks.<i>` becomes
// `layers.<i>`, so that recipes do not rely on these paths and find blocks by their computation
// (graph/repeat.h).
Graph with_block_paths(Graph graph);

}  // namespace tessera::pt2
