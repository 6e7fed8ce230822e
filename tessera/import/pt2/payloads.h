// Finds the elements of weights. A payload is a tensor in an entry of the archive, at an offset and
// with strides; one entry may hold several payloads. Numbers that the archive states for a payload
// are trusted only after a comparison with the entry's size. All arithmetic is checked for
// overflow.
//
// Training changes each parameter independently of the others. So if at least one of two payloads
// is a parameter, the two must have no element in common, or be the same elements in the same order
// (tied names of one parameter).
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

// Returns the index in the entry that follows the tensor's last element; 0 if the tensor has no
// elements, and nothing if the index does not fit an int64.
std::optional<int64_t> elements_reached(const TensorMeta& meta);

// Returns a text that is equal for two payloads if they are the same elements in the same order.
// Two that the archive does not have differ, as nothing tells whether they are tied.
std::string identity(const Payload& payload);

// Checks that all payloads are within their entries, and that parameters share no elements except
// tied ones. Errors (invalid input) name the parameter or buffer, what was expected and what was
// found. Payloads that the archive does not have (Payload::absent) are passed over.
Status check_payloads(const Archive& archive, const Program& program);

// Reads the elements in row-major order of the tensor's dims, as bytes of its dtype, and calls
// `visit` for each piece. Holds one piece in memory; if the elements are stored in another order,
// holds the part of the entry from the tensor's first to its last element. The payload must have
// been checked. Returns an error (invalid input) if the archive does not have the elements.
Status read_payload(const Archive& archive, const Payload& payload,
                    const std::function<Status(std::span<const char>)>& visit);

}  // namespace tessera::pt2
