#include "tessera/runtime/device/nccl_moves.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tessera/comm/transfer.h"
#include "tessera/runtime/formulas/merge.h"
#include "tessera/runtime/kernels/tensor.h"

namespace tessera::device {
namespace {

// A call whose members get or give parts of different sizes is done by a collective of NCCL, which
// wants equal ones, if the largest part times the members is at most so many times all parts.
constexpr int64_t kMostPadding = 2;

constexpr int kNcclUint8 = 1;

int64_t volume(const NcclMoves::Regions& regions) {
  int64_t sum = 0;
  for (const NcclMoves::Region& one : regions) sum += one.box.volume();
  return sum;
}

// Returns what `receiver` takes from `source`, over all items.
NcclMoves::Regions taken(const std::vector<Item>& items, size_t receiver, size_t source,
                         const ArrayView Item::*view) {
  NcclMoves::Regions regions;
  for (const Item& item : items) {
    for (const Box& box : comm::taken(*item.what, receiver, source)) {
      if (!box.empty()) regions.push_back({&(item.*view), box});
    }
  }
  return regions;
}

int operation(const std::vector<Item>& items) {
  return items.front().what->combiner == Combiner::kMax ? kNcclMax : kNcclSum;
}

bool holds_are_equal(const std::vector<Item>& items) {
  return std::ranges::all_of(items, [](const Item& item) {
    const SharedBoxes& hold = item.what->hold;
    return std::ranges::all_of(hold, [&](const Box& box) { return box == hold.front(); });
  });
}

bool all_take_the_same(const Link& link, const std::vector<Item>& items) {
  const size_t n = link.members.size();
  for (const Item& item : items) {
    for (size_t source = 0; source < n; ++source) {
      for (size_t receiver = 0; receiver < n; ++receiver) {
        if (comm::taken(*item.what, receiver, source) != comm::taken(*item.what, 0, source))
          return false;
      }
    }
  }
  return true;
}

// Returns the number of elements of the largest part: of what each member receives, if `reduced`,
// else of what each gives.
int64_t largest_part(const Link& link, const std::vector<Item>& items, bool reduced, int64_t* sum) {
  int64_t largest = 0;
  for (size_t member = 0; member < link.members.size(); ++member) {
    const int64_t part =
        volume(reduced ? taken(items, member, 0, &Item::out) : taken(items, 0, member, &Item::out));
    largest = std::max(largest, part);
    if (sum != nullptr) *sum += part;
  }
  return largest;
}

bool padding_is_small(const Link& link, const std::vector<Item>& items, bool reduced) {
  int64_t sum = 0, held = 0;
  const int64_t largest = largest_part(link, items, reduced, &sum);
  for (const Item& item : items) held += item.in.box.volume();
  const int64_t least = reduced ? std::min(sum, held) : sum;
  return largest > 0 && largest * static_cast<int64_t>(link.members.size()) <= kMostPadding * least;
}

int64_t offset_of(const ArrayView& view, const Box& region) {
  int64_t offset = 0;
  for (size_t d = 0; d < region.rank(); ++d)
    offset += (region.dims[d].begin - view.box.dims[d].begin) * view.strides[d];
  return offset;
}

void* native(const Link& link) { return link.stream.native_handle(); }

}  // namespace

int nccl_type(DType dtype) {
  switch (dtype) {
    case DType::kUInt8:
    case DType::kBool: return kNcclUint8;
    case DType::kInt32: return 2;
    case DType::kInt64: return 4;
    case DType::kFloat16: return 6;
    case DType::kFloat32: return 7;
    case DType::kFloat64: return 8;
    case DType::kBFloat16: return 9;
  }
  return kNcclUint8;
}

void NcclMoves::check(int code, std::string_view function) const {
  if (code == 0) return;
  throw comm::CommFault{fmt::format("rank {}: {}: {}", rank_, function,
                                    nccl_.error_string == nullptr ? "" : nccl_.error_string(code))};
}

at::Tensor NcclMoves::tensor(DType dtype, const Region& region) const {
  const ArrayView& view = *region.view;
  std::byte* data = view.data;
  for (size_t d = 0; d < region.box.rank(); ++d) {
    data +=
        (region.box.dims[d].begin - view.box.dims[d].begin) * view.strides[d] * dtype_bytes(dtype);
  }
  return kernels::tensor_of(data, dtype, region.box.shape(), view.strides, place_of_(view.data));
}

at::Tensor NcclMoves::empty(DType dtype, int64_t elements) const {
  return at::empty({elements}, at::TensorOptions(kernels::scalar_type(dtype)).device(device()));
}

at::Tensor NcclMoves::flat(DType dtype, const Regions& regions) const {
  at::Tensor packed = room(dtype, regions);
  int64_t at = 0;
  for (const Region& one : regions) {
    const at::Tensor from = tensor(dtype, one);
    if (from.data_ptr() == packed.data_ptr()) break;  // they are the memory itself
    packed.narrow(0, at, one.box.volume()).view(from.sizes()).copy_(from, /*non_blocking=*/true);
    at += one.box.volume();
  }
  return packed;
}

at::Tensor NcclMoves::room(DType dtype, const Regions& regions) const {
  if (regions.size() == 1) {
    const at::Tensor own = tensor(dtype, regions.front());
    if (own.device() == device() && own.is_contiguous()) return own.view({-1});
  }
  return empty(dtype, volume(regions));
}

void NcclMoves::unpack(DType dtype, const at::Tensor& packed, const Regions& regions) const {
  int64_t at = 0;
  for (const Region& one : regions) {
    const at::Tensor to = tensor(dtype, one);
    if (to.data_ptr() != packed.data_ptr() || regions.size() > 1) {
      to.copy_(packed.narrow(0, at, one.box.volume()).view(to.sizes()), /*non_blocking=*/true);
    }
    at += one.box.volume();
  }
}

void NcclMoves::send(const Link& link, size_t to, const at::Tensor& from) const {
  check(nccl_.send(from.data_ptr(), from.nbytes(), kNcclUint8, static_cast<int>(to), link.comm,
                   native(link)),
        "ncclSend");
}

void NcclMoves::receive(const Link& link, size_t from, const at::Tensor& to) const {
  check(nccl_.recv(to.data_ptr(), to.nbytes(), kNcclUint8, static_cast<int>(from), link.comm,
                   native(link)),
        "ncclRecv");
}

void NcclMoves::move(const Link& link, const std::vector<Item>& items) const {
  const Redistribution& first = *items.front().what;
  const bool reducible = first.combiner == Combiner::kSum || first.combiner == Combiner::kMax;
  if (link.members.size() == 1) return exchange(link, items);
  if (reducible && comm::is_chunked(items)) return all_reduce(link, items);
  if (reducible && holds_are_equal(items) && padding_is_small(link, items, true))
    return reduce_scatter(link, items);
  if (!first.combiner && all_take_the_same(link, items) && padding_is_small(link, items, false))
    return all_gather(link, items);
  exchange(link, items);
}

void NcclMoves::all_reduce(const Link& link, const std::vector<Item>& items) const {
  const DType dtype = items.front().what->dtype;
  Regions in, out;
  for (const Item& item : items) {
    if (item.in.box.empty()) continue;
    in.push_back({&item.in, item.in.box});
    out.push_back({&item.out, item.out.box});
  }
  const at::Tensor given = flat(dtype, in), made = room(dtype, out);
  check(nccl_.all_reduce(given.data_ptr(), made.data_ptr(), static_cast<size_t>(given.numel()),
                         nccl_type(dtype), operation(items), link.comm, native(link)),
        "ncclAllReduce");
  unpack(dtype, made, out);
}

void NcclMoves::reduce_scatter(const Link& link, const std::vector<Item>& items) const {
  const DType dtype = items.front().what->dtype;
  const int64_t part = largest_part(link, items, true, nullptr);
  const at::Tensor given = empty(dtype, part * static_cast<int64_t>(link.members.size()));
  given.zero_();
  for (size_t member = 0; member < link.members.size(); ++member) {
    const Regions regions = taken(items, member, link.me, &Item::in);
    if (regions.empty()) continue;
    const at::Tensor packed = flat(dtype, regions);
    given.narrow(0, static_cast<int64_t>(member) * part, packed.numel()).copy_(packed);
  }
  const at::Tensor made = empty(dtype, part);
  check(nccl_.reduce_scatter(given.data_ptr(), made.data_ptr(), static_cast<size_t>(part),
                             nccl_type(dtype), operation(items), link.comm, native(link)),
        "ncclReduceScatter");
  unpack(dtype, made, taken(items, link.me, link.me, &Item::out));
}

void NcclMoves::all_gather(const Link& link, const std::vector<Item>& items) const {
  const DType dtype = items.front().what->dtype;
  const int64_t part = largest_part(link, items, false, nullptr);
  const Regions mine = taken(items, link.me, link.me, &Item::in);
  at::Tensor given = flat(dtype, mine);
  if (given.numel() < part) {
    const at::Tensor padded = empty(dtype, part);
    padded.zero_();
    padded.narrow(0, 0, given.numel()).copy_(given);
    given = padded;
  }
  const at::Tensor made = empty(dtype, part * static_cast<int64_t>(link.members.size()));
  check(nccl_.all_gather(given.data_ptr(), made.data_ptr(), static_cast<size_t>(part),
                         nccl_type(dtype), link.comm, native(link)),
        "ncclAllGather");
  for (size_t member = 0; member < link.members.size(); ++member) {
    unpack(dtype, made.narrow(0, static_cast<int64_t>(member) * part, part),
           taken(items, link.me, member, &Item::out));
  }
}

void NcclMoves::exchange(const Link& link, const std::vector<Item>& items) const {
  const DType dtype = items.front().what->dtype;
  const size_t n = link.members.size();
  std::vector<at::Tensor> outgoing(n), parts(n);
  for (size_t member = 0; member < n; ++member) {
    const Regions regions = taken(items, member, link.me, &Item::in);
    if (regions.empty()) continue;
    outgoing[member] = flat(dtype, regions);
    if (member == link.me) parts[member] = outgoing[member].clone();
  }
  check(nccl_.group_start(), "ncclGroupStart");
  for (size_t member = 0; member < n; ++member) {
    if (member == link.me) continue;
    if (outgoing[member].defined()) send(link, member, outgoing[member]);
    const int64_t arriving = volume(taken(items, link.me, member, &Item::out));
    if (arriving == 0) continue;
    parts[member] = empty(dtype, arriving);
    receive(link, member, parts[member]);
  }
  check(nccl_.group_end(), "ncclGroupEnd");
  std::vector<std::vector<Box>> covered(items.size());
  for (size_t member = 0; member < n; ++member) {
    if (parts[member].defined()) assemble(link, items, member, parts[member], covered);
  }
}

void NcclMoves::assemble(const Link& link, const std::vector<Item>& items, size_t member,
                         const at::Tensor& packed, std::vector<std::vector<Box>>& covered) const {
  int64_t at = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    const Redistribution& what = *items[i].what;
    for (const Box& box : comm::taken(what, link.me, member)) {
      if (box.empty()) continue;
      const at::Tensor part = packed.narrow(0, at, box.volume()).view(box.shape());
      at += box.volume();
      const auto place = [&](const Box& region) {
        return tensor(what.dtype, {&items[i].out, region});
      };
      if (!what.combiner) {
        place(box).copy_(part, /*non_blocking=*/true);
        continue;
      }
      const ArrayView arrived{static_cast<std::byte*>(part.data_ptr()), box,
                              row_major_strides(box.shape())};
      const auto values = [&](const Box& region) {
        return kernels::tensor_of(
            arrived.data + offset_of(arrived, region) * dtype_bytes(what.dtype), what.dtype,
            region.shape(), arrived.strides, place_);
      };
      comm::add_part(
          covered[i], box,
          [&](const Box& region) { place(region).copy_(values(region), /*non_blocking=*/true); },
          [&](const Box& region) {
            kernels::merge_into(place(region), values(region), *what.combiner);
          });
    }
  }
}

}  // namespace tessera::device
