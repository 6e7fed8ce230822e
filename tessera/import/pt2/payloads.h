// Where the elements of weights lie: a payload is a tensor in an entry of the archive, at an offset
// and with strides, and several payloads may lie in one entry. Nothing that an archive states of
// them is believed before it was compared with the entry's size; all arithmetic is checked.
//
// Parameters of one training run are independent of each other, so their elements are too: two
// payloads with a parameter among them are either the same elements in the same order (tied, one
// parameter) or have none in common.
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

// One past the last element of its entry that the tensor has, 0 if it has none. Nothing: more than
// an int64 counts.
std::optional<int64_t> elements_reached(const TensorMeta& meta);

// Equal for payloads of the same elements in the same order.
std::string identity(const Payload& payload);

// Are all payloads within their entries, and those of parameters as they must be? Error (invalid
// input): names the parameter or buffer, what was expected and what was found.
Status check_payloads(const Archive& archive, const Program& program);

// The elements in the order of the tensor's dims, as bytes of its dtype, piece by piece. Memory is
// bounded by a piece, but of a tensor whose elements lie in another order: by what of the entry it
// reaches. The payload was checked.
Status read_payload(const Archive& archive, const Payload& payload,
                    const std::function<Status(std::span<const char>)>& visit);

}  // namespace tessera::pt2
