#include "tessera/comm/gather_bytes.h"

#include <numeric>

namespace tessera::comm {
namespace {

// Gathers bytes whose lengths all ranks know. Rank `to` gets the bytes of all ranks; if `to` is -1,
// all ranks get them.
std::vector<std::string> gather(Communicator& world, std::string_view mine,
                                const std::vector<int64_t>& lengths, int to) {
  const int64_t total = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  const bool takes = to < 0 || to == world.rank();
  std::vector<std::string> all(takes ? lengths.size() : 0);
  if (total == 0) return all;
  Redistribution what;
  what.kind = to < 0 ? CollectiveKind::kAllGather : CollectiveKind::kExchange;
  what.dtype = DType::kUInt8;
  int64_t begin = 0;
  for (size_t rank = 0; rank < lengths.size(); ++rank) {
    what.hold.push_back(Box({{begin, lengths[rank]}}));
    what.need.push_back(Box({{0, to < 0 || to == static_cast<int>(rank) ? total : 0}}));
    begin += lengths[rank];
  }
  const auto me = static_cast<size_t>(world.rank());
  std::string in(mine), out(takes ? static_cast<size_t>(total) : 0, '\0');
  const auto view = [](std::string& bytes, const Box& box) {
    return ArrayView{reinterpret_cast<std::byte*>(bytes.data()), box, {1}};
  };
  std::vector<int> members(lengths.size());
  std::iota(members.begin(), members.end(), 0);
  const Item item{&what, view(in, what.hold[me]), view(out, what.need[me])};
  world.wait(world.issue(world.group(members), {item},
                         {"gather_bytes", "bytes of each rank", "all ranks"}));
  for (size_t rank = 0; rank < all.size(); ++rank) {
    all[rank] = out.substr(static_cast<size_t>(what.hold[rank].dims.front().begin),
                           static_cast<size_t>(lengths[rank]));
  }
  return all;
}

}  // namespace

std::vector<std::string> gather_equal_bytes(Communicator& world, std::string_view mine) {
  if (world.size() == 1) return {std::string(mine)};
  return gather(world, mine,
                std::vector<int64_t>(static_cast<size_t>(world.size()), std::ssize(mine)), -1);
}

std::vector<std::string> gather_bytes(Communicator& world, std::string_view mine) {
  if (world.size() == 1) return {std::string(mine)};
  return gather(world, mine, gather_values(world, int64_t{std::ssize(mine)}), -1);
}

std::vector<std::string> gather_bytes_at(Communicator& world, int to, std::string_view mine) {
  if (world.size() == 1) return {std::string(mine)};
  return gather(world, mine, gather_values(world, int64_t{std::ssize(mine)}), to);
}

}  // namespace tessera::comm
