// Holds the memory of a rank in one tier: a fixed number of bytes. An Arena is for the device and
// host tiers: mapped memory that is aligned to 64 bytes, zero, and first touched by the thread that
// uses it. A DiskFile is for the disk tier: a file that is read and written by calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "tessera/base/result.h"
#include "tessera/plan/plan.h"

namespace tessera {

class Arena {
 public:
  // Maps anonymous memory, in huge pages where the system gives them. Not for Tier::kDisk.
  static Result<Arena> create(Tier tier, int64_t bytes);
  Arena() = default;
  ~Arena();
  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&& other) noexcept;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Takes all of the memory from the system now, if the system can do that. Otherwise, and without
  // this call, the system gives each page when the page is first touched.
  void populate() const;

  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};

// The arena of the disk tier: an unnamed file in TMPDIR whose disk space is reserved when it is
// created. Reads and writes bypass the page cache where the file system can do that (O_DIRECT,
// which moves whole blocks through an aligned buffer). Only one thread uses the file at a time.
// Errors are faults of one line: the disk is full, or a read gives fewer bytes than asked for.
class DiskFile {
 public:
  static constexpr int64_t kBlock = 4096;

  static Result<DiskFile> create(int64_t bytes);
  // Takes over an open file. `direct` says whether it was opened with O_DIRECT.
  static DiskFile adopt(int file, bool direct);
  DiskFile() = default;
  ~DiskFile();
  DiskFile(DiskFile&& other) noexcept;
  DiskFile& operator=(DiskFile&& other) noexcept;
  DiskFile(const DiskFile&) = delete;
  DiskFile& operator=(const DiskFile&) = delete;

  Status read(int64_t offset, std::byte* to, int64_t bytes);
  Status write(int64_t offset, const std::byte* from, int64_t bytes);

 private:
  struct Release {
    void operator()(std::byte* memory) const;
  };
  Status read_blocks(int64_t offset, std::byte* to, int64_t bytes) const;
  Status write_blocks(int64_t offset, const std::byte* from, int64_t bytes) const;
  std::byte* bounce();

  int file_ = -1;
  bool direct_ = false;
  std::unique_ptr<std::byte, Release> bounce_;
};

}  // namespace tessera
