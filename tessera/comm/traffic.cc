#include <algorithm>

#include "tessera/comm/communicator.h"
#include "tessera/comm/transfer.h"

namespace tessera::comm {
namespace {

constexpr std::array<std::string_view, kCollectiveKinds> kNames = {
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all",
    "broadcast",  "reduce",     "permute",        "exchange"};

int64_t elements_sent(const Redistribution& what, size_t receiver, size_t source) {
  int64_t elements = 0;
  for (const Box& box : taken(what, receiver, source)) elements += box.volume();
  return elements;
}

}  // namespace

std::string_view collective_name(CollectiveKind kind) { return kNames[static_cast<size_t>(kind)]; }

Traffic traffic(const Redistribution& what, size_t member) {
  return bucket_traffic({&what}, member);
}

Traffic bucket_traffic(const std::vector<const Redistribution*>& items, size_t member) {
  Traffic out;
  if (items.empty()) return out;
  const size_t members = items.front()->hold.size();
  const bool chunked =
      std::ranges::all_of(items, [](const Redistribution* what) { return is_chunked(*what); });
  for (size_t peer = 0; peer < members; ++peer) {
    if (peer == member) continue;
    int64_t scattered = 0;  // first phase: what the peer takes from this member
    int64_t gathered = 0;   // second phase of a chunked all-reduce: the reduced chunk
    for (const Redistribution* what : items) {
      const int64_t bytes = dtype_bytes(what->dtype);
      if (chunked) {
        scattered += chunk(*what, peer).size * bytes;
        gathered += chunk(*what, member).size * bytes;
      } else {
        scattered += elements_sent(*what, peer, member) * bytes;
      }
    }
    out.bytes += scattered + gathered;
    out.messages += (scattered > 0 ? 1 : 0) + (gathered > 0 ? 1 : 0);
  }
  return out;
}

int64_t Counters::total_bytes() const {
  int64_t total = point_to_point.bytes;
  for (const Traffic& kind : collectives) total += kind.bytes;
  return total;
}

std::map<std::string, int64_t> Counters::bytes_by_kind() const {
  std::map<std::string, int64_t> out;
  for (size_t i = 0; i < kCollectiveKinds; ++i) {
    if (collectives[i].bytes > 0) out.emplace(kNames[i], collectives[i].bytes);
  }
  if (point_to_point.bytes > 0) out.emplace("send", point_to_point.bytes);
  return out;
}

}  // namespace tessera::comm
