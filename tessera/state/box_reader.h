// Internal to state: reads one stored box of a checkpoint into an array that has room for some of
// it. Each byte of the file is read once, straight to its place if the bytes are contiguous there
// and need no conversion, else by way of a small buffer.
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

// A row-major array of `region` in memory. Null: there is room for nothing.
struct BoxTarget {
  Box region;
  DType dtype = DType::kFloat32;
  std::byte* out = nullptr;
};

class BoxReader {
 public:
  // Makes a reader of `entry`, an array of the file that holds `box`, row-major. The references are
  // kept.
  BoxReader(const SafetensorsFile& file, const ArrayEntry& entry, const Box& box,
            const BoxTarget& target);

  // Reads the bytes of the file that the target has room for, and small gaps between them.
  Status read_needed();
  // Reads all bytes and returns their checksum.
  Result<uint64_t> read_all();
  int64_t needed_bytes() const { return count_ * run_bytes_; }  // of the file

 private:
  int64_t begin_of_run() const { return runs_.at(run_).in_a * element_bytes_; }
  Status read(int64_t begin, int64_t end, Checksum* sum);
  std::byte* place_of(int64_t begin, int64_t bytes);
  void scatter(int64_t begin, int64_t bytes);

  const SafetensorsFile& file_;
  const ArrayEntry& entry_;
  const BoxTarget& target_;
  Box box_, common_;
  BoxRuns runs_;  // a: the stored box; b: the target's region
  int64_t count_, element_bytes_, run_bytes_, run_ = 0;
  std::vector<std::byte> piece_;
};

}  // namespace tessera
