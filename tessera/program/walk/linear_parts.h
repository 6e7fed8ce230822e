// Linear ops on parts: the op of a sum is the sum of the op of its parts, so an op that adds,
// scales or casts works on parts as they are, and they are completed behind it. Private to
// tessera/program.
#pragma once

#include <optional>
#include <vector>

#include "tessera/program/walk/holds.h"
#include "tessera/program/walk/text_writer.h"

namespace tessera {

// Returns whether the op is linear and its result has, in each place, the sum of what lies there in
// the operands. An op that reads through windows does not qualify: where parts cover different
// places, a window may lie in several of them.
bool takes_parts(const Op& op);

// Returns the op's operands if all of them are parts in one layout and the op may work on them;
// else nothing. Complete terms of a sum count as parts if the sum moves fewer bytes than they
// would.
std::optional<std::vector<Held>> parts_of(const Facts& facts, const Holds& holds,
                                          ConversionPaths& paths, const Op& op);

// Writes the op on these parts. The op is split as the parts are, and its result is held like them.
Held work_on_parts(Facts& facts, TextWriter& writer, const Op& op, const std::vector<Held>& parts);

}  // namespace tessera
