// Where the bytes of an exchange go, from what its members hold and need: a halo goes to neighbours, few
// of which sit in other nodes (cost/collective_cost.h prices it).
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/cost/collective_cost.h"
#include "tessera/program/program.h"

namespace tessera {

// Of an issue without a combiner. `nodes`: the node of each member, in any numbering.
ExchangeLoad exchange_load(const Issue& issue, const std::vector<int64_t>& nodes);

}  // namespace tessera
