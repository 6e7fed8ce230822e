// Orders of names of hosts: the natural one, in which node2 comes before node10, and that of their
// spelling. readers.h reads files of hosts.
//
//   natural_order({"node10", "node2"})            // {1, 0}
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/result.h"

namespace tessera {

// Returns whether `a` comes before `b` when runs of digits are compared as numbers.
bool naturally_before(std::string_view a, std::string_view b);
// Returns the positions of the names in natural order.
std::vector<int64_t> natural_order(const std::vector<std::string>& names);
// Returns the positions of the names in the order of their spelling, which launchers use that sort
// names as texts.
std::vector<int64_t> spelling_order(const std::vector<std::string>& names);

// Returns for each host its position in `known`. Errors, one line: a host that `known` does not
// have. `file` is where the hosts come from, `network` where the known names come from.
Result<std::vector<int64_t>> find_hosts(const std::vector<std::string>& hosts,
                                        const std::vector<std::string>& known,
                                        std::string_view file, std::string_view network);

}  // namespace tessera
