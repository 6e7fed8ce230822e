// Plays the rows of a plan's schedule against each other (send_waits.cc says why). Private to
// tessera/program.
#pragma once

#include <limits>
#include <vector>

#include "tessera/program/passes/sent_buffers.h"

namespace tessera {

// TextInstruction::order of a wait that comes after all other instructions.
inline constexpr int64_t kLastOrder = std::numeric_limits<int64_t>::max();

// Plays the rows, run by run. A row waits for a send only where the way of its buffer says. If no row
// can go on, the first send on the cycle of rows that wait for each other gets one more copy
// (add_slot). The texts have all waits but those for the sends of `sent`.
void play_rows(const std::vector<PlaceText>& texts, const RowOrders& orders,
               std::vector<Sent>& sent);

}  // namespace tessera
