// Reads the links between the devices of an instance, for systems that place work on unequal
// networks. An instance has either two matrices (delay and bandwidth), or groups of devices with
// one kind of link inside groups, another kind between groups, and exceptions:
//
//   "groups": [[0, 1, 2], [3, 4, 5]],
//   "inside": { "delay_ms": 1, "gbit_per_second": 10 },
//   "across": { "delay_ms": 50, "gbit_per_second": 1 },
//   "exceptions": [ { "from": 0, "to": 1, "delay_ms": 1, "gbit_per_second": 2 } ]
#pragma once

#include <array>
#include <vector>

#include "tessera/base/json_table.h"

namespace tessera::published {

// Reads the links. `names`: the keys of delay and bandwidth. A bandwidth is above 0, a matrix has a
// row and a column for each device, and both directions of a link are equal; the diagonal is not
// read.
Status read_links(const JsonTable& in, size_t devices, const std::array<const char*, 2>& names,
                  std::vector<std::vector<double>>& delay,
                  std::vector<std::vector<double>>& bandwidth);

}  // namespace tessera::published
