#include "tessera/cluster/rank_devices.h"

#include <algorithm>

#include "tessera/base/check.h"

namespace tessera {

RankDevices::RankDevices(std::vector<int64_t> devices) : devices_(std::move(devices)) {
  bool in_order = true;
  for (size_t rank = 0; rank < devices_.size(); ++rank)
    in_order &= devices_[rank] == static_cast<int64_t>(rank);
  if (in_order) {
    devices_.clear();
    return;
  }
  ranks_.assign(static_cast<size_t>(*std::ranges::max_element(devices_)) + 1, -1);
  for (size_t rank = 0; rank < devices_.size(); ++rank) {
    TESSERA_CHECK(devices_[rank] >= 0, "rank {} is on device {}", rank, devices_[rank]);
    int64_t& here = ranks_[static_cast<size_t>(devices_[rank])];
    TESSERA_CHECK(here < 0, "ranks {} and {} are on device {}", here, rank, devices_[rank]);
    here = static_cast<int64_t>(rank);
  }
}

std::vector<int64_t> RankDevices::devices_of(std::span<const int> ranks) const {
  std::vector<int64_t> out;
  out.reserve(ranks.size());
  for (const int rank : ranks) out.push_back(device_of(rank));
  return out;
}

int64_t RankDevices::rank_on(int64_t device) const {
  if (devices_.empty()) return device;
  return device < static_cast<int64_t>(ranks_.size()) ? ranks_[static_cast<size_t>(device)] : -1;
}

int64_t RankDevices::end(int64_t ranks) const {
  return devices_.empty() ? ranks : static_cast<int64_t>(ranks_.size());
}

std::vector<int> RankDevices::ranks_by_device(int64_t ranks) const {
  std::vector<int> out;
  for (int64_t device = 0; device < end(ranks); ++device) {
    if (const int64_t rank = rank_on(device); rank >= 0) out.push_back(static_cast<int>(rank));
  }
  return out;
}

}  // namespace tessera
