// The device of each rank of a run. By default rank r is on device r; a plan may set another order
// by `device_order` (plan/device_order.h). Programs contain only ranks. Code that needs the machine
// (costs, simulation, launchers) uses this class to get a rank's device.
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
  RankDevices() = default;  // default order: rank r is on device r, for any r
  // Makes the order in which rank r is on device devices[r]. No device may be negative or occur
  // twice.
  explicit RankDevices(std::vector<int64_t> devices);

  int64_t device_of(int64_t rank) const {
    return devices_.empty() ? rank : devices_[static_cast<size_t>(rank)];
  }
  std::vector<int64_t> devices_of(std::span<const int> ranks) const;
  // Returns the rank on a device, or -1 if there is none. In the default order it returns the
  // device's number for every device, so the caller must check that there are so many ranks.
  int64_t rank_on(int64_t device) const;
  // Returns the largest number of a device that has a rank, plus 1. `ranks` is the number of ranks,
  // which the default order does not know.
  int64_t end(int64_t ranks) const;
  bool in_order() const { return devices_.empty(); }
  // Returns the ranks 0 .. ranks - 1 in ascending order of their devices.
  std::vector<int> ranks_by_device(int64_t ranks) const;

  friend bool operator==(const RankDevices&, const RankDevices&) = default;

 private:
  std::vector<int64_t> devices_;  // device of each rank; empty: default order
  std::vector<int64_t> ranks_;    // rank on each device; -1: none
};

}  // namespace tessera
