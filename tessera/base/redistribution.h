// A `Redistribution` is the description of a collective of any kind. Member j of a group holds the
// box hold[j] of a global array and wants the box need[j]. Without a combiner each wanted element
// is copied from one member that holds the element. With a combiner each wanted element is the
// combination, in member order, of the values of all members that hold the element. Programs
// contain redistributions, and communicators execute them.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "tessera/base/box.h"
#include "tessera/base/dtype.h"

namespace tessera {

enum class CollectiveKind : uint8_t {
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kAllToAll,
  kBroadcast,
  kReduce,
  kPermute,   // each member receives from at most one member and sends to at most one
  kExchange,  // anything else
};
inline constexpr size_t kCollectiveKinds = 8;
std::string_view collective_name(CollectiveKind kind);  // "all_reduce", "all_gather", ...

struct Redistribution {
  CollectiveKind kind = CollectiveKind::kExchange;
  std::optional<Combiner> combiner;  // unset: elements are copied
  DType dtype = DType::kFloat32;
  SharedBoxes hold;  // the box that each member holds, by member
  SharedBoxes need;  // the box that each member wants, by member
  friend bool operator==(const Redistribution&, const Redistribution&) = default;
};

// The bytes and messages that one member sends under the direct algorithm: the member sends to each
// other member the elements that this receiver takes from it. If several members hold an element, a
// receiver takes it from the first holder in the ring order that begins with the receiver. In an
// all-reduce over n members of E elements cut in n chunks e_r, member r sends (E - e_r) + (n-1) e_r
// elements, which is 2 (n-1)/n E for equal chunks, as in a ring. For each peer and each phase there
// is one message, if it has at least one element.
struct Traffic {
  int64_t bytes = 0;
  int64_t messages = 0;
  Traffic& operator+=(const Traffic& other) {
    bytes += other.bytes;
    messages += other.messages;
    return *this;
  }
  friend bool operator==(const Traffic&, const Traffic&) = default;
};
Traffic traffic(const Redistribution& what, size_t member);
// Returns the traffic of several arrays that move in one call. Their bytes add up, but the elements
// of all arrays for the same peer are in one message.
Traffic bucket_traffic(const std::vector<const Redistribution*>& items, size_t member);

// A box that a member takes from `source` in a redistribution without combiner. takes() returns
// disjoint boxes that cover all elements of need[member] that any member holds. Each element is
// taken from the nearest holder in ring order (member itself, member+1, ...).
struct Take {
  size_t source;
  Box box;
};
std::vector<Take> takes(const Redistribution& what, size_t member);

}  // namespace tessera
