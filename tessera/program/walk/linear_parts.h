// Linear ops on parts: a sum of parts is the parts' sum, so an op that adds, scales or casts works
// on parts as they are, and they are completed behind it. Private to tessera/program.
#pragma once

#include <optional>
#include <vector>

#include "tessera/program/walk/holds.h"
#include "tessera/program/walk/text_writer.h"

namespace tessera {

// Is it a linear op whose result has at each place the sum of what lies there in the operands? Not one
// that reads through windows: where parts cover different places, a window may lie in several.
bool takes_parts(const Op& op);

// The op's operands if all of them are parts alike and the op may work on them; none: it may not.
// Complete terms of a sum count as parts if the sum moves less than they would.
std::optional<std::vector<Held>> parts_of(const Facts& facts, const Holds& holds,
                                          ConversionPaths& paths, const Op& op);

// Writes the op, on these parts; what it makes is held as they are, and it is split as they are.
Held work_on_parts(Facts& facts, TextWriter& writer, const Op& op, const std::vector<Held>& parts);

}  // namespace tessera
