// Linear ops on parts of a sum. A linear op f (one that adds, scales or casts) has f(a + b) = f(a)
// + f(b). Therefore it may work on parts, and its result is completed instead of its operands.
// Private to tessera/program.
#pragma once

#include <optional>
#include <vector>

#include "tessera/program/walk/holds.h"
#include "tessera/program/walk/text_writer.h"

namespace tessera {

// Returns whether the op may work on parts. It must be linear and must not read through windows,
// because one window may read elements of several parts where parts cover different places of the
// tensor.
bool takes_parts(const Op& op);

// Returns the values of the op's operands if all of them are parts in the same layout and the op
// may work on parts; else nothing. The op may also be a sum of complete terms in the same layout:
// these count as parts if fewer bytes move when the sum moves instead of its terms
// (ConversionPaths::moves_once).
std::optional<std::vector<Held>> parts_of(const Facts& facts, const Holds& holds,
                                          ConversionPaths& paths, const Op& op);

// Writes the op on these parts. The op is split as the parts are. Returns its result, which has the
// layout of the parts.
Held work_on_parts(Facts& facts, TextWriter& writer, const Op& op, const std::vector<Held>& parts);

}  // namespace tessera
