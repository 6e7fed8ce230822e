// The device of each rank of a run. By default rank r is on device r; a plan's `device_order` says
// otherwise (plan/device_order.h). Programs know ranks only; code that reads a machine (costs,
// simulation, launchers) asks here.
//
//   const RankDevices devices({0, 4, 1, 5});  // by rank
//   devices.device_of(1);                     // 4
//   devices.rank_on(5);                       // 3
//   devices.rank_on(2);                       // -1: no rank is there
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tessera {

class RankDevices {
 public:
  RankDevices() = default;  // rank r is on device r, for any number of ranks
  // Makes the order from the devices by rank; none negative, none twice.
  explicit RankDevices(std::vector<int64_t> devices);

  int64_t device_of(int64_t rank) const {
    return devices_.empty() ? rank : devices_[static_cast<size_t>(rank)];
  }
  std::vector<int64_t> devices_of(std::span<const int> ranks) const;
  // Returns the rank on a device; -1: none. By default every device has a rank: the caller knows
  // how many there are.
  int64_t rank_on(int64_t device) const;
  // Returns the first device behind all devices of `ranks` ranks.
  int64_t end(int64_t ranks) const;
  bool in_order() const { return devices_.empty(); }
  // Returns the ranks from the lowest device to the highest.
  std::vector<int> ranks_by_device(int64_t ranks) const;

  friend bool operator==(const RankDevices&, const RankDevices&) = default;

 private:
  std::vector<int64_t> devices_;  // by rank; empty: in order
  std::vector<int64_t> ranks_;    // by device, -1: none
};

}  // namespace tessera
