#include <algorithm>

#include "tessera/comm/communicator.h"

namespace tessera::comm {
int64_t Counters::total_bytes() const {
  int64_t total = point_to_point.bytes;
  for (const Traffic& kind : collectives) total += kind.bytes;
  return total;
}

std::map<std::string, int64_t> Counters::bytes_by_kind() const {
  std::map<std::string, int64_t> out;
  for (size_t i = 0; i < kCollectiveKinds; ++i) {
    if (collectives[i].bytes == 0) continue;
    out.emplace(collective_name(static_cast<CollectiveKind>(i)), collectives[i].bytes);
  }
  if (point_to_point.bytes > 0) out.emplace("send", point_to_point.bytes);
  return out;
}

}  // namespace tessera::comm
