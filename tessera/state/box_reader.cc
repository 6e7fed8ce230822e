#include "tessera/state/box_reader.h"

#include <algorithm>
#include <cstring>

#include "tessera/base/convert.h"
#include "tessera/state/source.h"
#include "tessera/state/storage.h"

namespace tessera {
namespace {

// Bytes of one read. They are few enough that their checksum is computed while they are still in
// the processor's cache.
constexpr int64_t kReadBytes = 1 << 20;

}  // namespace

BoxReader::BoxReader(const SafetensorsFile& file, const ArrayEntry& entry, const Box& box,
                     const BoxTarget& target)
    : file_(file),
      entry_(entry),
      target_(target),
      box_(box),
      common_(intersect(box, target.region)),
      runs_(common_, box_, target.region),
      count_(target.out == nullptr ? 0 : runs_.count()),
      element_bytes_(dtype_bytes(entry.dtype)),
      run_bytes_(runs_.length() * element_bytes_) {}

Status BoxReader::read_needed() {
  if (count_ == 0) return {};
  Box inside = common_;
  for (size_t d = 0; d < inside.rank(); ++d) inside.dims[d].begin -= box_.dims[d].begin;
  // A gap that is no larger than a block of the disk or than a run is read, too. So at most twice
  // the needed bytes are read, or as much as whole blocks demand.
  ByteRange next;
  for (const ByteRange& range : byte_ranges(entry_.shape, element_bytes_, inside)) {
    const int64_t gap = range.begin - (next.begin + next.bytes);
    if (next.bytes > 0 && gap <= std::max(kStorageBlock, run_bytes_)) {
      next.bytes = range.begin + range.bytes - next.begin;
      continue;
    }
    TESSERA_TRY_VOID(read(next.begin, next.begin + next.bytes, nullptr));
    next = range;
  }
  return read(next.begin, next.begin + next.bytes, nullptr);
}

Result<uint64_t> BoxReader::read_all() {
  Checksum sum;
  TESSERA_TRY_VOID(read(0, entry_.bytes, &sum));
  return sum.value();
}

Status BoxReader::read(int64_t begin, int64_t end, Checksum* sum) {
  for (int64_t at = begin; at < end; at += kReadBytes) {
    const int64_t bytes = std::min(kReadBytes, end - at);
    std::byte* to = place_of(at, bytes);
    const bool there = to != nullptr;
    if (!there) {
      piece_.resize(std::max(static_cast<size_t>(bytes), piece_.size()));
      to = piece_.data();
    }
    TESSERA_TRY_VOID(file_.read(entry_, at, bytes, to));
    if (sum != nullptr) sum->add(to, bytes);
    if (!there) scatter(at, bytes);
  }
  return {};
}

// Returns where in the target's array the bytes belong if they are contiguous there and need no
// conversion; else null.
std::byte* BoxReader::place_of(int64_t begin, int64_t bytes) {
  while (run_ < count_ && begin_of_run() + run_bytes_ <= begin) ++run_;
  if (run_ == count_ || target_.dtype != entry_.dtype) return nullptr;
  const BoxRuns::Run run = runs_.at(run_);
  const int64_t inside = begin - run.in_a * element_bytes_;
  if (inside < 0 || inside + bytes > run_bytes_) return nullptr;
  return target_.out + run.in_b * element_bytes_ + inside;
}

// Copies the bytes of `piece_` that the target has room for. Pieces hold whole elements.
void BoxReader::scatter(int64_t begin, int64_t bytes) {
  const int64_t to_bytes = dtype_bytes(target_.dtype);
  for (; run_ < count_; ++run_) {
    const BoxRuns::Run run = runs_.at(run_);
    const int64_t first = run.in_a * element_bytes_;
    const int64_t from = std::max(begin, first), to = std::min(begin + bytes, first + run_bytes_);
    if (from < to) {
      const std::byte* data = piece_.data() + (from - begin);
      std::byte* out = target_.out + (run.in_b + (from - first) / element_bytes_) * to_bytes;
      if (target_.dtype == entry_.dtype) {
        std::memcpy(out, data, static_cast<size_t>(to - from));
      } else {
        convert(entry_.dtype, data, target_.dtype, out, (to - from) / element_bytes_);
      }
    }
    if (first + run_bytes_ > begin + bytes) return;  // the run goes on in the next piece
  }
}

}  // namespace tessera
