// Linear ops on parts: a sum of parts is the parts' sum, so an op that adds, scales or casts works
// on parts as they are, and they are completed behind it. Private to tessera/program.
#pragma once

#include <optional>
#include <vector>

#include "tessera/program/walk/holds.h"
#include "tessera/program/walk/waits.h"

namespace tessera {

// The op's operands if all of them are parts alike and the op may work on them; none: it may not.
std::optional<std::vector<Held>> parts_of(const Facts& facts, const Holds& holds, const Op& op);

// Writes the op, on these parts; what it makes are parts too. `plan`, of this op, takes over their
// layout.
Held work_on_parts(const Facts& facts, TextWriter& writer, Waits& waits, const Op& op, OpPlan& plan,
                   const std::vector<Held>& parts);

}  // namespace tessera
