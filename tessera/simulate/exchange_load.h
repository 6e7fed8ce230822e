// Counts how many bytes of an exchange stay inside nodes and how many leave them, from the boxes
// that its members hold and need. cost/collective_cost.h then prices the exchange by these counts.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/cost/collective_cost.h"
#include "tessera/program/program.h"

namespace tessera {

// Returns the load of an issue, which must have no combiner or be an exchange of named rows.
// `nodes`: by member, the number of its node in any numbering.
ExchangeLoad exchange_load(const Issue& issue, const std::vector<int64_t>& nodes);

}  // namespace tessera
