#include "tessera/base/redistribution.h"

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

bool overlap(const Box& a, const Box& b) {
  return !a.empty() && !b.empty() && !intersect(a, b).empty();
}

void count(Traffic& traffic, int64_t elements, int64_t element_bytes) {
  if (elements == 0) return;
  traffic.bytes += elements * element_bytes;
  traffic.messages += 1;
}

// The chunks are cut so that what the combiner sees together (a triple of moments) stays together.
Traffic all_reduce_traffic(const Redistribution& what, size_t member) {
  const int64_t members = static_cast<int64_t>(what.hold.size());
  const Box& box = what.hold[member];
  int64_t unit = 1;
  if (what.combiner == Combiner::kMoments && box.rank() > 0 && !box.empty()) {
    unit = box.dims.back().size;
  }
  const Interval units{0, box.volume() / unit};
  Traffic out;
  const int64_t own = split_interval(units, members, static_cast<int64_t>(member)).size * unit;
  for (int64_t peer = 0; peer < members; ++peer) {
    if (peer == static_cast<int64_t>(member)) continue;
    count(out, split_interval(units, members, peer).size * unit, dtype_bytes(what.dtype));
    count(out, own, dtype_bytes(what.dtype));
  }
  return out;
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
  TESSERA_CHECK(what.hold.size() == what.need.size() && member < what.hold.size(),
                "{} holds, {} needs, member {}", what.hold.size(), what.need.size(), member);
  if (what.kind == CollectiveKind::kAllReduce) return all_reduce_traffic(what, member);
  const size_t members = what.hold.size();
  const Box& own = what.hold[member];
  Traffic out;
  if (own.empty()) return out;
  // Copies: an element that a rival holds too goes to a taker only if no rival is nearer to the taker.
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
    count(out, total_volume(given), dtype_bytes(what.dtype));
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
