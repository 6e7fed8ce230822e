#include "tessera/runtime/checkpoint/rescale.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

namespace tessera {
namespace {

// Returns the homes of each tensor. A tensor may have several, because a rank may keep copies of a
// region for several stages.
std::map<TensorId, std::vector<Home>> homes_of(const Program& program) {
  std::map<TensorId, std::vector<Home>> homes;
  for (const Home& home : program.homes) homes[home.tensor].push_back(home);
  return homes;
}

comm::ArrayView view_of_state(const Box& box, std::byte* data) {
  return {data, box, row_major_strides(box.shape())};
}

}  // namespace

Program idle_program(int rank, int64_t ranks) {
  Program program;
  program.rank = rank;
  program.ranks = ranks;
  return program;
}

namespace {

// The move of one tensor on this rank. Values of homes in memory are sent from and received into
// that memory; values of homes on disk go through `held` and `needed`.
struct Moving {
  Moving(const MovedTensor& tensor, const Home* from_home, const RankExecutor& from,
         const Home* to_home, RankExecutor& to, size_t rank)
      : what(tensor.what), target(to_home) {
    const Box &hold = what.hold[rank], &need = what.need[rank];
    // This cast is safe: the data is only read. Communicators take data to read and data to write
    // in the same type.
    auto* data =
        from_home == nullptr ? nullptr : const_cast<std::byte*>(from.memory(*from_home));  // NOLINT
    if (from_home != nullptr && data == nullptr) {
      held = from.read(*from_home);
      data = held.data.data();
    }
    std::byte* out = to_home == nullptr ? nullptr : to.memory(*to_home);
    if (to_home != nullptr && out == nullptr) {
      needed = {tensor.to, to_home->region, what.dtype, {}};
      needed.data.resize(static_cast<size_t>(need.volume() * dtype_bytes(what.dtype)));
      out = needed.data.data();
    }
    item = {&what, view_of_state(hold, data), view_of_state(need, out)};
    bytes = (hold.volume() + need.volume()) * dtype_bytes(what.dtype);
  }

  const Redistribution& what;
  const Home* target;      // null: this rank needs nothing
  HostArray held, needed;  // values of homes on disk
  comm::Item item;
  comm::Handle handle = comm::kNoHandle;
  int64_t bytes = 0;
};

void finish(comm::Communicator& world, std::vector<std::unique_ptr<Moving>>& moving,
            RankExecutor& to, const std::map<TensorId, std::vector<Home>>& homes) {
  for (const auto& one : moving) {
    world.wait(one->handle);
    if (one->target == nullptr) continue;
    if (!one->needed.data.empty()) to.write(*one->target, one->needed);
    // Writes the other copies of the region, which the rank may keep for several stages.
    for (const Home& home : homes.at(one->target->tensor)) {
      if (home.buffer == one->target->buffer) continue;
      const std::byte* data = one->item.out.data;
      HostArray copy{home.tensor, home.region, one->what.dtype, {}};
      copy.data.assign(data, data + one->item.out.box.volume() * dtype_bytes(copy.dtype));
      to.write(home, copy);
    }
  }
  moving.clear();
}

}  // namespace

void move_state(comm::Communicator& world, const StateMove& move, const RankExecutor& from,
                const Program& before, RankExecutor& to, const Program& after) {
  // The most bytes of tensors that are in flight at once. Several tensors move together, so that
  // ranks need not wait for each tensor. Communicators that pack messages need this much memory.
  constexpr int64_t kMostBytes = int64_t{256} << 20;
  std::vector<int> members(static_cast<size_t>(move.ranks));
  std::iota(members.begin(), members.end(), 0);
  const auto rank = static_cast<size_t>(world.rank());
  if (rank >= members.size()) return;
  const int group = world.group(members);
  const auto held = homes_of(before), needed = homes_of(after);
  const auto first_of = [](const std::map<TensorId, std::vector<Home>>& homes, TensorId tensor) {
    const auto at = homes.find(tensor);
    return at == homes.end() ? nullptr : &at->second.front();
  };
  std::vector<std::unique_ptr<Moving>> moving;
  int64_t bytes = 0;
  for (const MovedTensor& tensor : move.tensors) {
    moving.push_back(std::make_unique<Moving>(tensor, first_of(held, tensor.from), from,
                                              first_of(needed, tensor.to), to, rank));
    Moving& one = *moving.back();
    one.handle = world.issue(group, {one.item}, {"change of plan", tensor.name, "all ranks"});
    bytes += one.bytes;
    if (bytes < kMostBytes) continue;
    finish(world, moving, to, needed);
    bytes = 0;
  }
  finish(world, moving, to, needed);
}

}  // namespace tessera
