// Writes shards (checkpoint.h).
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <future>
#include <memory>
#include <utility>

#include "tessera/base/check.h"
#include "tessera/state/checkpoint.h"
#include "tessera/state/checksum.h"

namespace tessera {
namespace {

// Computes the checksums of the parts from the bytes of the file, which must be added in order.
class PartSums {
 public:
  explicit PartSums(const SafetensorsLayout& layout) : layout_(layout) {}

  void add(std::span<const std::byte> bytes) {
    const int64_t end = at_ + static_cast<int64_t>(bytes.size());
    while (sums_.size() < layout_.arrays.size()) {
      const ArrayEntry& array = layout_.arrays[sums_.size()];
      const int64_t array_end = array.begin + array.bytes;
      const int64_t from = std::max(at_, array.begin), to = std::min(end, array_end);
      if (from < to) sum_->add(bytes.data() + (from - at_), to - from);
      if (end < array_end) break;
      sums_.push_back(sum_->value());
      sum_ = std::make_unique<Checksum>();
    }
    at_ = end;
  }
  std::vector<uint64_t> take() {
    TESSERA_CHECK(at_ == layout_.bytes, "{} bytes of {}", at_, layout_.bytes);
    return std::move(sums_);
  }

 private:
  const SafetensorsLayout& layout_;
  int64_t at_ = 0;
  std::unique_ptr<Checksum> sum_ = std::make_unique<Checksum>();
  std::vector<uint64_t> sums_;
};

// Writes pieces of a file, one after the other. A piece is written while the caller prepares the
// next one, so the caller must keep a piece unchanged until it has given the next one.
class PieceWriter {
 public:
  explicit PieceWriter(StorageFile& file) : file_(file) {}

  Status give(std::span<const std::byte> piece, bool last) {
    TESSERA_TRY_VOID(wait());
    const auto write = [this, piece] {
      return file_.write(piece.data(), static_cast<int64_t>(piece.size()));
    };
    if (last) return write();
    writing_ = std::async(std::launch::async, write);
    return {};
  }

 private:
  Status wait() { return writing_.valid() ? writing_.get() : Status{}; }

  StorageFile& file_;
  std::future<Status> writing_;  // its destructor waits
};

using Bytes = std::span<const std::byte>;

// Writes the file of a shard. `piece` returns bytes [begin, begin + bytes) of the file; it is
// called for ascending ranges.
Result<ShardReport> write_pieces(Storage& storage, const std::string& dir, int64_t step,
                                 const Shard& shard,
                                 const std::function<Result<Bytes>(int64_t, int64_t)>& piece) {
  const SafetensorsLayout& layout = shard.layout;
  TESSERA_TRY(const auto file, storage.create(path_in(writing_path(dir, step), shard.name)));
  PieceWriter writer(*file);
  PartSums sums(layout);
  const int64_t most = storage.piece_bytes();
  for (int64_t at = 0; at < layout.bytes; at += most) {
    const int64_t bytes = std::min(most, layout.bytes - at);
    TESSERA_TRY(const Bytes one, piece(at, bytes));
    sums.add(one);
    TESSERA_TRY_VOID(writer.give(one, at + bytes == layout.bytes));
  }
  TESSERA_TRY_VOID(file->sync());
  return ShardReport{{shard.name, layout.bytes, checksum(layout.head)}, sums.take()};
}

struct Freed {
  void operator()(std::byte* memory) const { std::free(memory); }
};

}  // namespace

std::string shard_name(int rank) { return fmt::format("rank-{:05}.safetensors", rank); }

std::string array_name(const ManifestTensor& tensor, const Box& box) {
  return box == Box::whole(tensor.shape) ? tensor.name : tensor.name + box.to_string();
}

Shard plan_shard(int rank, const std::vector<ManifestTensor>& tensors,
                 const std::vector<ShardPart>& parts) {
  std::vector<ArrayEntry> arrays;
  for (const ShardPart& part : parts) {
    const ManifestTensor& tensor = tensors[part.tensor];
    arrays.push_back({array_name(tensor, part.box), tensor.dtype, part.box.shape()});
  }
  return {shard_name(rank), layout_safetensors(std::move(arrays))};
}

Status fill_shard(const Shard& shard, const FillPart& fill, int64_t begin,
                  std::span<std::byte> out) {
  const SafetensorsLayout& layout = shard.layout;
  const int64_t end = begin + static_cast<int64_t>(out.size());
  const auto head = static_cast<int64_t>(layout.head.size());
  if (begin < head) {
    std::memcpy(out.data(), layout.head.data() + begin,
                static_cast<size_t>(std::min(end, head) - begin));
  }
  // Finds the first array that ends after `begin`.
  auto array =
      std::partition_point(layout.arrays.begin(), layout.arrays.end(),
                           [&](const ArrayEntry& one) { return one.begin + one.bytes <= begin; });
  for (; array != layout.arrays.end() && array->begin < end; ++array) {
    const int64_t from = std::max(begin, array->begin),
                  to = std::min(end, array->begin + array->bytes);
    if (from == to) continue;
    TESSERA_TRY_VOID(
        fill(static_cast<size_t>(array - layout.arrays.begin()), from - array->begin,
             out.subspan(static_cast<size_t>(from - begin), static_cast<size_t>(to - from))));
  }
  return {};
}

int64_t piece_memory(const Storage& storage, const Shard& shard) {
  return std::min(2 * storage.piece_bytes(), shard.bytes());
}

Result<ShardReport> write_shard(Storage& storage, const std::string& dir, int64_t step,
                                const Shard& shard, const FillPart& fill,
                                std::span<std::byte> memory) {
  const auto most = static_cast<size_t>(storage.piece_bytes());
  std::unique_ptr<std::byte, Freed> own;
  if (static_cast<int64_t>(memory.size()) < piece_memory(storage, shard)) {
    own.reset(static_cast<std::byte*>(std::aligned_alloc(kStorageBlock, 2 * most)));
    TESSERA_CHECK(own != nullptr, "no memory for two pieces of {} bytes", most);
    memory = {own.get(), 2 * most};
  }
  size_t next = 0;
  return write_pieces(
      storage, dir, step, shard, [&](int64_t begin, int64_t bytes) -> Result<Bytes> {
        const auto out = memory.subspan(next++ % 2 * most, static_cast<size_t>(bytes));
        TESSERA_TRY_VOID(fill_shard(shard, fill, begin, out));
        return Bytes(out);
      });
}

Result<ShardReport> write_shard(Storage& storage, const std::string& dir, int64_t step,
                                const Shard& shard, std::span<const std::byte> image) {
  TESSERA_CHECK(static_cast<int64_t>(image.size()) == shard.bytes(), "{}: {} bytes for {}",
                shard.name, image.size(), shard.bytes());
  return write_pieces(
      storage, dir, step, shard, [&](int64_t begin, int64_t bytes) -> Result<Bytes> {
        return image.subspan(static_cast<size_t>(begin), static_cast<size_t>(bytes));
      });
}

}  // namespace tessera
