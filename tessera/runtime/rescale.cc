#include "tessera/runtime/rescale.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

namespace tessera {
namespace {

// The homes of each tensor; a rank may keep copies of one region for several stages.
std::map<TensorId, std::vector<Home>> homes_of(const Program& program) {
  std::map<TensorId, std::vector<Home>> homes;
  for (const Home& home : program.homes) homes[home.tensor].push_back(home);
  return homes;
}

comm::ArrayView view_of(const Box& box, std::byte* data) {
  return {data, box, row_major_strides(box.shape())};
}

}  // namespace

Program idle_program(int rank, int64_t ranks) {
  Program program;
  program.rank = rank;
  program.ranks = ranks;
  return program;
}

void move_state(comm::Communicator& world, const StateMove& move, const RankExecutor& from,
                const Program& before, RankExecutor& to, const Program& after) {
  std::vector<int> members(static_cast<size_t>(move.ranks));
  std::iota(members.begin(), members.end(), 0);
  const auto rank = static_cast<size_t>(world.rank());
  if (rank >= members.size()) return;
  const int group = world.group(members);
  const auto held = homes_of(before), needed = homes_of(after);
  for (const MovedTensor& tensor : move.tensors) {
    const Box &hold = tensor.what.hold[rank], &need = tensor.what.need[rank];
    HostArray mine;
    if (const auto at = held.find(tensor.from); at != held.end())
      mine = from.read(at->second.front());
    HostArray next;
    next.data.resize(static_cast<size_t>(need.volume() * dtype_bytes(tensor.what.dtype)));
    comm::Item item{&tensor.what, view_of(hold, mine.data.data()), view_of(need, next.data.data())};
    world.wait(world.issue(group, {item}, {"change of plan", tensor.name, "all ranks"}));
    const auto at = needed.find(tensor.to);
    if (at == needed.end()) continue;
    next.tensor = tensor.to;
    next.dtype = tensor.what.dtype;
    for (const Home& home : at->second) {
      next.region = home.region;
      to.write(home, next);
    }
  }
}

}  // namespace tessera
