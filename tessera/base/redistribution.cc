#include "tessera/base/redistribution.h"

#include <algorithm>

#include "tessera/base/check.h"

namespace tessera {
namespace {

// Replaces each box of `boxes` by its parts outside `cut`.
void remove_box(std::vector<Box>& boxes, const Box& cut) {
  std::vector<Box> rest;
  for (const Box& box : boxes) {
    for (Box& part : subtract(box, cut)) rest.push_back(std::move(part));
  }
  boxes = std::move(rest);
}

int64_t total_volume(const std::vector<Box>& boxes) {
  int64_t volume = 0;
  for (const Box& box : boxes) volume += box.volume();
  return volume;
}

// Returns whether two boxes overlap. Makes no box, because it is called for all pairs of members.
bool overlap(const Box& a, const Box& b) {
  TESSERA_CHECK(a.rank() == b.rank(), "ranks {} and {}", a.rank(), b.rank());
  for (size_t i = 0; i < a.rank(); ++i) {
    const Interval &x = a.dims[i], &y = b.dims[i];
    if (std::max(x.begin, y.begin) >= std::min(x.end(), y.end())) return false;
  }
  return true;
}

// Returns whether this is an all-reduce in which all members hold and need the same box. Such a
// redistribution is done by chunks of the flat array; every other one is done by boxes, like an
// exchange.
bool is_chunked(const Redistribution& what) {
  if (what.kind != CollectiveKind::kAllReduce || !what.combiner) return false;
  const auto same = [&](const Box& box) { return box == what.hold.front(); };
  return std::all_of(what.hold.begin(), what.hold.end(), same) &&
         std::all_of(what.need.begin(), what.need.end(), same);
}

// The bytes that one member sends to each other member. `taken`: the elements that the receiver
// takes from the member (first phase). `reduced`: the chunk that the member has reduced (second
// phase of an all-reduce).
struct Sent {
  std::vector<int64_t> taken, reduced;  // by receiver
};

// Adds the bytes of an all-reduce by chunks. A chunk does not cut elements that the combiner needs
// together (the three of a moments triple).
void add_all_reduce(const Redistribution& what, size_t member, Sent& sent) {
  const int64_t members = static_cast<int64_t>(what.hold.size());
  const Box& box = what.hold[member];
  const int64_t unit = what.combiner == Combiner::kMoments && box.rank() > 0 && !box.empty()
                           ? box.dims.back().size
                           : 1;
  const Interval units{0, box.volume() / unit};
  const auto chunk_bytes = [&](size_t owner) {
    return split_interval(units, members, static_cast<int64_t>(owner)).size * unit *
           dtype_bytes(what.dtype);
  };
  for (size_t peer = 0; peer < what.hold.size(); ++peer) {
    if (peer == member) continue;
    sent.taken[peer] += chunk_bytes(peer);
    sent.reduced[peer] += chunk_bytes(member);
  }
}

void add_taken(const Redistribution& what, size_t member, Sent& sent) {
  const size_t members = what.hold.size();
  const Box& own = what.hold[member];
  if (own.empty()) return;
  // Without a combiner each element has one sender. If another member (a rival) holds an element
  // too, `member` sends it to a taker only if no rival is nearer to the taker in ring order.
  std::vector<size_t> rivals;
  if (!what.combiner) {
    for (size_t k = 0; k < members; ++k) {
      if (k != member && overlap(what.hold[k], own)) rivals.push_back(k);
    }
  }
  for (size_t taker = 0; taker < members; ++taker) {
    if (taker == member || !overlap(own, what.need[taker])) continue;
    std::vector<Box> given{intersect(own, what.need[taker])};
    const size_t distance = (member + members - taker) % members;
    for (size_t rival : rivals) {
      if ((rival + members - taker) % members < distance) remove_box(given, what.hold[rival]);
    }
    sent.taken[taker] += total_volume(given) * dtype_bytes(what.dtype);
  }
}

}  // namespace

std::string_view collective_name(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kAllReduce: return "all_reduce";
    case CollectiveKind::kAllGather: return "all_gather";
    case CollectiveKind::kReduceScatter: return "reduce_scatter";
    case CollectiveKind::kAllToAll: return "all_to_all";
    case CollectiveKind::kBroadcast: return "broadcast";
    case CollectiveKind::kReduce: return "reduce";
    case CollectiveKind::kPermute: return "permute";
    case CollectiveKind::kExchange: return "exchange";
  }
  return "?";
}

Traffic traffic(const Redistribution& what, size_t member) {
  return bucket_traffic({&what}, member);
}

Traffic bucket_traffic(const std::vector<const Redistribution*>& items, size_t member) {
  Traffic out;
  if (items.empty()) return out;
  Sent sent;
  sent.taken.assign(items.front()->hold.size(), 0);
  sent.reduced.assign(items.front()->hold.size(), 0);
  const bool chunked = std::all_of(items.begin(), items.end(),
                                   [](const Redistribution* what) { return is_chunked(*what); });
  for (const Redistribution* what : items) {
    TESSERA_CHECK(what->hold.size() == sent.taken.size() &&
                      what->need.size() == sent.taken.size() && member < sent.taken.size(),
                  "{} holds, {} needs, member {}", what->hold.size(), what->need.size(), member);
    if (chunked) {
      add_all_reduce(*what, member, sent);
    } else {
      add_taken(*what, member, sent);
    }
  }
  for (const std::vector<int64_t>* phase : {&sent.taken, &sent.reduced}) {
    for (int64_t bytes : *phase) {
      out.bytes += bytes;
      out.messages += bytes > 0 ? 1 : 0;
    }
  }
  return out;
}

std::vector<Take> takes(const Redistribution& what, size_t member) {
  const size_t members = what.hold.size();
  std::vector<Take> out;
  if (what.need[member].empty()) return out;
  std::vector<Box> wanted{what.need[member]};
  for (size_t k = 0; k < members && !wanted.empty(); ++k) {
    const size_t source = (member + k) % members;
    const Box& hold = what.hold[source];
    if (hold.empty()) continue;
    bool found = false;
    for (const Box& box : wanted) {
      Box common = intersect(box, hold);
      if (common.empty()) continue;
      out.push_back({source, std::move(common)});
      found = true;
    }
    if (found) remove_box(wanted, hold);
  }
  return out;
}

}  // namespace tessera
