// Finds the elements of weights: a payload is a tensor in an entry of the archive, at an offset and
// with strides, and several payloads may lie in one entry. Statements of an archive about payloads
// are trusted only after a comparison with the entry's size; all arithmetic is checked.
//
// Parameters of a training run are independent of each other, so their elements are too: two
// payloads, of which at least one is a parameter, are either the same elements in the same order
// (tied, one parameter) or have none in common.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "tessera/base/result.h"
#include "tessera/import/pt2/archive.h"
#include "tessera/import/pt2/schema.h"

namespace tessera::pt2 {

// Returns one past the last element of its entry that the tensor has, 0 if it has none; nothing if
// that is more than an int64 counts.
std::optional<int64_t> elements_reached(const TensorMeta& meta);

// Returns a text that is equal for payloads of the same elements in the same order.
std::string identity(const Payload& payload);

// Checks that all payloads are within their entries, and that parameters' payloads are as they must
// be. Errors (invalid input) name the parameter or buffer, what was expected and what was found.
Status check_payloads(const Archive& archive, const Program& program);

// Reads the elements in the order of the tensor's dims, as bytes of its dtype, piece by piece.
// Memory is bounded by a piece; if the elements lie in another order, by the part of the entry that
// the tensor reaches. The payload must have been checked.
Status read_payload(const Archive& archive, const Payload& payload,
                    const std::function<Status(std::span<const char>)>& visit);

}  // namespace tessera::pt2
