// Rows of tokens in the order of their experts. A mixture of experts of PyTorch copies each token once
// for each of its top k experts, sorts these rows by the number of the expert, multiplies each run of
// rows with the weights of its expert (a grouped product), and brings the rows back into their order.
// The graph has no rows in such an order: `moe_dispatch` puts the tokens into the slots of the experts,
// and `moe_combine` adds up what comes back (docs/reference/ops.md). Each expert gets as many slots as a
// sequence has tokens, so that no token is dropped.
//
// Tensors that only say which row is where (ids, orders, counts, offsets) have no tensors in the graph.
// They, and tensors whose rows are in the order of the experts, are *routed*: only ops whose result does
// not depend on the order of the rows of an expert may read them, all others are refused.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/import/pt2/emitter.h"

namespace tessera::pt2 {

// The choices of a top k.
struct Routing {
  Value slot;  // int64 [batch, seq, choice]: the slot of each choice of a token
  Vars batch, seq, choice, experts, capacity;
  int64_t rows = 0;     // choices of all tokens
  Vars tokens() const;  // batch and seq
  Vars slots() const;   // experts, batch and capacity
};

struct Routed {
  enum class Kind : uint8_t {
    kIds,        // the experts of each token
    kSortedIds,  // the experts of the rows, in their order
    kOrder,      // the row in the order of tokens that stands at each place
    kTokens,     // the token of that row
    kCounts,     // the number of rows of each expert
    kOffsets,    // the number of rows of each expert and of those before it
    kEmpty,      // a tensor of the size of kOrder without values
    kInverse,    // the place of each row in the order of tokens
    kRows,       // values of the rows in the order of the experts; the graph has them by slots
    kChoices,    // the same in the order of tokens
  };
  Kind kind = Kind::kIds;
  size_t routing = 0;  // number of the top k
  Value value = {};    // kRows, kChoices: dims (experts batch capacity), then those of a row
};

}  // namespace tessera::pt2
