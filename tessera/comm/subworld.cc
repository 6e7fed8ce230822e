#include "tessera/comm/subworld.h"

#include <algorithm>
#include <utility>

#include "tessera/base/check.h"
#include "tessera/comm/gather_bytes.h"

namespace tessera::comm {

Subworld::Subworld(Communicator& whole, std::vector<int> members)
    : whole_(whole), members_(std::move(members)) {
  const auto me = std::find(members_.begin(), members_.end(), whole.rank());
  TESSERA_CHECK(me != members_.end(), "rank {} is not in its own part", whole.rank());
  rank_ = static_cast<int>(me - members_.begin());
}

int Subworld::group(const std::vector<int>& members) {
  std::vector<int> of_all;
  of_all.reserve(members.size());
  for (const int member : members) of_all.push_back(of_whole(member));
  return whole_.group(of_all);
}

void Subworld::barrier() { gather_equal_bytes(*this, "."); }

}  // namespace tessera::comm
