// Where messages that are sent are awaited, and how many copies their buffers have. Private to
// tessera/program.
#pragma once

#include <vector>

#include "tessera/program/place_text.h"

namespace tessera {

// The last step of place_waits: the texts await everything else already. Decides for every send,
// such that the rows of the plan never wait for each other in a circle if they can do without.
void place_send_waits(std::vector<PlaceText>& texts, const ResolvedPlan& plan);

}  // namespace tessera
