// Waits for messages that are sent, and the number of copies of their buffers. Private to
// tessera/program.
#pragma once

#include <vector>

#include "tessera/program/place_text.h"

namespace tessera {

// Places the waits of all sends, as the last step of place_waits: the texts await everything else
// already. Chooses the waits such that the rows of the plan never wait for each other in a circle,
// if that can be avoided.
void place_send_waits(std::vector<PlaceText>& texts, const ResolvedPlan& plan);

}  // namespace tessera
