// Internal to state: reads one stored box of a checkpoint into an array in memory, which may have
// room for only a part of the box. Each byte of the file is read at most once. If the bytes are
// contiguous in the array too and need no conversion, they are read straight to their place, else
// into a small buffer first.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/base/box.h"
#include "tessera/base/dtype.h"
#include "tessera/base/result.h"
#include "tessera/state/box_runs.h"
#include "tessera/state/checksum.h"
#include "tessera/state/safetensors.h"

namespace tessera {

// A row-major array in memory that has room for `region`. If `out` is null, it has room for
// nothing.
struct BoxTarget {
  Box region;
  DType dtype = DType::kFloat32;
  std::byte* out = nullptr;
};

class BoxReader {
 public:
  // Makes a reader of `entry`, an array of the file with the elements of `box`, row-major. The
  // reader keeps the references to `file`, `entry` and `target`.
  BoxReader(const SafetensorsFile& file, const ArrayEntry& entry, const Box& box,
            const BoxTarget& target);

  // Reads the bytes of the file that the target has room for. Small gaps between these bytes are
  // read, too, and dropped.
  Status read_needed();
  // Reads all bytes of the stored box, keeps those that the target has room for, and returns the
  // checksum of all.
  Result<uint64_t> read_all();
  // Returns the bytes of the file that the target has room for.
  int64_t needed_bytes() const { return count_ * run_bytes_; }

 private:
  int64_t begin_of_run() const { return runs_.at(run_).in_a * element_bytes_; }
  Status read(int64_t begin, int64_t end, Checksum* sum);
  std::byte* place_of(int64_t begin, int64_t bytes);
  void scatter(int64_t begin, int64_t bytes);

  const SafetensorsFile& file_;
  const ArrayEntry& entry_;
  const BoxTarget& target_;
  Box box_, common_;
  BoxRuns runs_;  // runs in the stored box (a) and in the target's region (b)
  int64_t count_, element_bytes_, run_bytes_, run_ = 0;
  std::vector<std::byte> piece_;
};

}  // namespace tessera
