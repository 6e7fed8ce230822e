// Counts the bytes of an exchange that stay inside nodes and that leave them, from what its members
// hold and need (cost/collective_cost.h prices the count).
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/cost/collective_cost.h"
#include "tessera/program/program.h"

namespace tessera {

// Returns the load of an issue without a combiner, or of an exchange of named rows. `nodes`: the
// node of each member, in any numbering.
ExchangeLoad exchange_load(const Issue& issue, const std::vector<int64_t>& nodes);

}  // namespace tessera
