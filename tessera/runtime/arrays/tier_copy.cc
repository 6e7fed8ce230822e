#include "tessera/runtime/arrays/tier_copy.h"

#include <memory>
#include <utility>
#include <vector>

#include "tessera/base/box.h"

namespace tessera {
namespace {

using kernels::Array;

// Adjacent bytes on disk, and where they are in the contiguous array in memory.
struct CopiedExtent {
  int64_t offset = 0, at = 0, bytes = 0;
};

int64_t elements(const Array& array) {
  int64_t n = 1;
  for (int64_t size : array.shape) n *= size;
  return n;
}

// Returns the extents of an array on disk in row-major order; extents that are adjacent on disk
// are joined.
std::vector<CopiedExtent> extents_of(const TierArray& where) {
  const Array& array = where.array;
  const int64_t item = dtype_bytes(array.dtype), n = elements(array);
  std::vector<CopiedExtent> out;
  std::vector<int64_t> position(array.shape.size(), 0);
  const int64_t row = array.shape.empty() ? 1 : array.shape.back();
  for (int64_t done = 0; done < n; done += row) {
    int64_t offset = where.offset;
    for (size_t d = 0; d < position.size(); ++d) offset += position[d] * array.strides[d] * item;
    if (!out.empty() && out.back().offset + out.back().bytes == offset) {
      out.back().bytes += row * item;
    } else {
      out.push_back({offset, done * item, row * item});
    }
    for (size_t d = position.size(); d-- > 1;) {
      if (++position[d - 1] < array.shape[d - 1]) break;
      position[d - 1] = 0;
    }
  }
  return out;
}

bool is_contiguous(const Array& array) { return array.strides == row_major_strides(array.shape); }

// A contiguous array in memory: the given array itself if it is contiguous, else one in memory that
// this object owns.
struct Contiguous {
  Array array;
  std::shared_ptr<std::vector<std::byte>> own;
};
Contiguous own_memory(const Array& like) {
  Contiguous out;
  out.own = std::make_shared<std::vector<std::byte>>(
      static_cast<size_t>(elements(like) * dtype_bytes(like.dtype)));
  out.array = Array::contiguous(out.own->data(), like.dtype, like.shape);
  return out;
}

Status read_all(DiskFile& disk, const std::vector<CopiedExtent>& extents, std::byte* to) {
  for (const CopiedExtent& extent : extents)
    TESSERA_TRY_VOID(disk.read(extent.offset, to + extent.at, extent.bytes));
  return {};
}
Status write_all(DiskFile& disk, const std::vector<CopiedExtent>& extents, const std::byte* from) {
  for (const CopiedExtent& extent : extents)
    TESSERA_TRY_VOID(disk.write(extent.offset, from + extent.at, extent.bytes));
  return {};
}

Copier::Job prepare_read(const TierArray& from, const Array& to, bool add, DiskFile& disk) {
  std::vector<CopiedExtent> extents = extents_of(from);
  if (!add && is_contiguous(to)) {
    return
        [extents = std::move(extents), to = to.data, &disk] { return read_all(disk, extents, to); };
  }
  Contiguous between = own_memory(to);
  kernels::Kernel move =
      add ? kernels::prepare_add(between.array, to) : kernels::prepare_copy(between.array, to);
  return [extents = std::move(extents), between, move = std::move(move), &disk]() -> Status {
    TESSERA_TRY_VOID(read_all(disk, extents, between.array.data));
    move();
    return {};
  };
}

Copier::Job prepare_write(const Array& from, const TierArray& to, bool add, DiskFile& disk) {
  std::vector<CopiedExtent> extents = extents_of(to);
  if (!add && is_contiguous(from)) {
    return [extents = std::move(extents), from = from.data, &disk] {
      return write_all(disk, extents, from);
    };
  }
  Contiguous between = own_memory(from);
  kernels::Kernel move =
      add ? kernels::prepare_add(from, between.array) : kernels::prepare_copy(from, between.array);
  return [extents = std::move(extents), between, move = std::move(move), add, &disk]() -> Status {
    if (add) TESSERA_TRY_VOID(read_all(disk, extents, between.array.data));
    move();
    return write_all(disk, extents, between.array.data);
  };
}

}  // namespace

Copier::Job prepare_tier_copy(const TierArray& from, const TierArray& to, bool add,
                              DiskFile& disk) {
  if (elements(to.array) == 0) return [] { return Status(); };
  if (from.on_disk() && to.on_disk()) {
    Contiguous between = own_memory(to.array);
    Copier::Job read = prepare_read(from, between.array, false, disk);
    Copier::Job write = prepare_write(between.array, to, add, disk);
    return [between, read = std::move(read), write = std::move(write)]() -> Status {
      TESSERA_TRY_VOID(read());
      return write();
    };
  }
  if (from.on_disk()) return prepare_read(from, to.array, add, disk);
  if (to.on_disk()) return prepare_write(from.array, to, add, disk);
  kernels::Kernel move = add ? kernels::prepare_add(from.array, to.array)
                             : kernels::prepare_copy(from.array, to.array);
  return [move = std::move(move)]() -> Status {
    move();
    return {};
  };
}

}  // namespace tessera
