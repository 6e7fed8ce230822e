#include "tessera/runtime/step/rank_memory.h"

#include <algorithm>
#include <utility>

namespace tessera {

Status RankMemory::take(device::Device* device) {
  device_ = device;
  for (const Tier tier : {Tier::kDevice, Tier::kHost}) {
    const auto index = static_cast<size_t>(tier);
    const int64_t bytes = program_.arena_bytes[index];
    if (device != nullptr && tier == Tier::kDevice) {
      TESSERA_TRY(device_memory_, device->allocate(bytes));
    } else {
      TESSERA_TRY(arenas_[index], Arena::create(tier, bytes));
    }
  }
  return {};
}

Status RankMemory::take_disk(int64_t bytes) {
  TESSERA_TRY(disk_, DiskFile::create(bytes));
  return {};
}

void RankMemory::populate() const {
  for (const Arena& arena : arenas_) arena.populate();
}

std::byte* RankMemory::data(const Buffer& buffer, int64_t micro_batch) const {
  std::byte* arena =
      of_device(buffer) ? device_memory_->data() : arenas_[static_cast<size_t>(buffer.tier)].data();
  return arena + buffer.offset_at(micro_batch);
}

TierArray RankMemory::tier_array(const View& view, int64_t micro_batch) const {
  const Buffer& buffer = program_.buffer(view.buffer);
  const device::Place place = of_device(buffer) ? device_->place() : device::Place{};
  TierArray result{
      {nullptr, buffer.dtype, view.box.shape(), row_major_strides(buffer.shape), place}, -1};
  int64_t begin = 0;
  for (size_t d = 0; d < view.box.rank(); ++d)
    begin += view.box.dims[d].begin * result.array.strides[d] * dtype_bytes(buffer.dtype);
  if (buffer.tier == Tier::kDisk) {
    result.offset = buffer.offset_at(micro_batch) + begin;
  } else {
    result.array.data = data(buffer, micro_batch) + begin;
  }
  return result;
}

comm::ArrayView RankMemory::comm_view(const std::optional<View>& view, const Box& box,
                                      int64_t micro_batch) const {
  if (!view) return {nullptr, box, row_major_strides(box.shape())};
  const kernels::Array memory = array(*view, micro_batch);
  return {memory.data, box, memory.strides};
}

device::HostCopies RankMemory::host_copies() const {
  return device::HostCopies([this](const std::byte* at) {
    return device_ == nullptr ? device::Place{} : device_->place_of(at);
  });
}

void RankMemory::extend(Extent& extent, const View& view) const {
  const Buffer& buffer = program_.buffer(view.buffer);
  if (buffer.bytes() == 0) return;  // an empty buffer may have the offset of another one
  if (buffer.slots > 1) {
    extent.slotted.push_back(buffer.id);
    return;
  }
  int64_t& end = extent.plain[static_cast<size_t>(buffer.tier)];
  end = std::max(end, buffer.offset + buffer.bytes());
}

void RankMemory::touch(const Extent& extent, int64_t micro_batch) {
  for (size_t tier = 0; tier < peak_.size(); ++tier)
    peak_[tier] = std::max(peak_[tier], extent.plain[tier]);
  for (BufferId id : extent.slotted) {
    const Buffer& buffer = program_.buffer(id);
    int64_t& most = peak_[static_cast<size_t>(buffer.tier)];
    most = std::max(most, buffer.offset_at(micro_batch) + buffer.bytes());
  }
}

}  // namespace tessera
