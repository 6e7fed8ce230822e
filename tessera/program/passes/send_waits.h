// The waits for sends, and how many copies the buffers have from which messages are sent. Private
// to tessera/program.
#pragma once

#include <vector>

#include "tessera/program/place_text.h"

namespace tessera {

// Writes the waits of all sends. This is the last step of place_waits, when the texts await
// everything else already. If it can be avoided, the waits are chosen such that the rows of the
// plan's schedule (the ranks that run the same blocks in the same order) never wait for each other
// in a circle.
void place_send_waits(std::vector<PlaceText>& texts, const ResolvedPlan& plan);

}  // namespace tessera
