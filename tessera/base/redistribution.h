// A `Redistribution` describes every collective. Member j of a group holds the box hold[j] of a
// global array and wants the box need[j]. Without a combiner each wanted element is copied from one
// member that holds it; with a combiner it is the combination, in member order, of the elements of
// all members that hold it. Programs describe collectives by it, and communicators execute it.
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
  kPermute,   // each member takes from at most one member and gives to at most one
  kExchange,  // anything else
};
inline constexpr size_t kCollectiveKinds = 8;
std::string_view collective_name(CollectiveKind kind);  // "all_reduce", "all_gather", ...

struct Redistribution {
  CollectiveKind kind = CollectiveKind::kExchange;
  std::optional<Combiner> combiner;  // unset: copy
  DType dtype = DType::kFloat32;
  SharedBoxes hold;  // by member
  SharedBoxes need;  // by member
  friend bool operator==(const Redistribution&, const Redistribution&) = default;
};

// The bytes and messages that one member sends under the direct algorithm: it sends to each other
// member the elements that the receiver takes from it (a replica is taken from the first holder in
// ring order from the taker). In an all-reduce over n members of E elements cut in n chunks e_r,
// member r sends (E - e_r) + (n-1) e_r elements, which is 2 (n-1)/n E for equal chunks, as in a
// ring. There is one message for each peer and phase with at least one element.
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
// Returns the traffic of several arrays that move in one call: bytes add up, messages are shared.
Traffic bucket_traffic(const std::vector<const Redistribution*>& items, size_t member);

// For copies, `takes` returns the pieces that `member` takes, as (source member, box), disjoint,
// covering need[member] as far as it is held. The nearest holder in ring order (member itself,
// member+1, ...) serves each element.
struct Take {
  size_t source;
  Box box;
};
std::vector<Take> takes(const Redistribution& what, size_t member);

}  // namespace tessera
