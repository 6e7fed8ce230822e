#include "tessera/runtime/arrays/arena.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "tessera/base/check.h"
#include "tessera/base/text.h"

namespace tessera {
namespace {

constexpr int64_t kHugePage = 2 << 20;
constexpr int64_t kBounce = 1 << 20;  // bytes of the aligned buffer

}  // namespace

Result<Arena> Arena::create(Tier tier, int64_t bytes) {
  TESSERA_CHECK(tier != Tier::kDisk, "the disk tier is no memory");
  Arena arena;
  if (bytes == 0) return arena;
  const auto size = static_cast<size_t>(bytes);
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    const int error = errno;
    const std::string message = fmt::format("{} tier: expected {} of memory: {}", tier_name(tier),
                                            format_bytes(bytes), std::strerror(error));
    return error == ENOMEM ? invalid_input(message) : fault(message);
  }
#ifdef MADV_HUGEPAGE
  if (bytes >= 2 * kHugePage) madvise(memory, size, MADV_HUGEPAGE);
#endif
  arena.data_ = static_cast<std::byte*>(memory);
  arena.bytes_ = bytes;
  return arena;
}

void Arena::populate() const {
#ifdef MADV_POPULATE_WRITE
  if (data_ != nullptr) madvise(data_, static_cast<size_t>(bytes_), MADV_POPULATE_WRITE);
#endif
}

Arena::~Arena() {
  if (data_ != nullptr) munmap(data_, static_cast<size_t>(bytes_));
}
Arena::Arena(Arena&& other) noexcept { *this = std::move(other); }
Arena& Arena::operator=(Arena&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

// ---- the disk tier
// -------------------------------------------------------------------------------------------------
Result<DiskFile> DiskFile::create(int64_t bytes) {
  if (bytes == 0) return DiskFile();
  std::signal(SIGXFSZ, SIG_IGN);  // so that a write beyond the size limit of files returns an error
  const char* folder = std::getenv("TMPDIR");
  std::string path =
      std::string(folder != nullptr && *folder != '\0' ? folder : "/tmp") + "/tessera.XXXXXX";
  const int file = mkstemp(path.data());
  if (file < 0) return fault(fmt::format("disk tier: {}: {}", path, std::strerror(errno)));
  unlink(path.c_str());
  bool direct = false;
#ifdef O_DIRECT
  direct = fcntl(file, F_SETFL, fcntl(file, F_GETFL) | O_DIRECT) == 0;
#endif
  DiskFile created = adopt(file, direct);
  const int64_t whole = (bytes + kBlock - 1) / kBlock * kBlock;
  if (const int error = posix_fallocate(file, 0, whole); error != 0) {
    return fault(fmt::format("disk tier: {}: expected room for {}: {}", path, format_bytes(whole),
                             std::strerror(error)));
  }
  return created;
}

DiskFile DiskFile::adopt(int file, bool direct) {
  DiskFile out;
  out.file_ = file;
  out.direct_ = direct;
  return out;
}

DiskFile::~DiskFile() {
  if (file_ >= 0) close(file_);
}
DiskFile::DiskFile(DiskFile&& other) noexcept { *this = std::move(other); }
DiskFile& DiskFile::operator=(DiskFile&& other) noexcept {
  std::swap(file_, other.file_);
  std::swap(direct_, other.direct_);
  std::swap(bounce_, other.bounce_);
  return *this;
}

void DiskFile::Release::operator()(std::byte* memory) const { std::free(memory); }

std::byte* DiskFile::bounce() {
  if (bounce_ == nullptr) {
    bounce_.reset(static_cast<std::byte*>(std::aligned_alloc(kBlock, kBounce)));
    TESSERA_CHECK(bounce_ != nullptr, "no memory for a buffer of {} bytes", kBounce);
  }
  return bounce_.get();
}

Status DiskFile::read_blocks(int64_t offset, std::byte* to, int64_t bytes) const {
  for (int64_t done = 0; done < bytes;) {
    const ssize_t n = pread(file_, to + done, static_cast<size_t>(bytes - done), offset + done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      return fault(fmt::format("disk tier: expected to read {} bytes at {}, got {}: {}", bytes,
                               offset, done, n < 0 ? std::strerror(errno) : "the file ends"));
    }
    done += n;
  }
  return {};
}

Status DiskFile::write_blocks(int64_t offset, const std::byte* from, int64_t bytes) const {
  for (int64_t done = 0; done < bytes;) {
    const ssize_t n = pwrite(file_, from + done, static_cast<size_t>(bytes - done), offset + done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      return fault(fmt::format("disk tier: expected to write {} bytes at {}, wrote {}: {}", bytes,
                               offset, done, std::strerror(n < 0 ? errno : ENOSPC)));
    }
    done += n;
  }
  return {};
}

Status DiskFile::read(int64_t offset, std::byte* to, int64_t bytes) {
  if (!direct_) return read_blocks(offset, to, bytes);
  const int64_t end = offset + bytes;
  for (int64_t at = offset / kBlock * kBlock; at < end; at += kBounce) {
    const int64_t stop = std::min(at + kBounce, (end + kBlock - 1) / kBlock * kBlock);
    TESSERA_TRY_VOID(read_blocks(at, bounce(), stop - at));
    const int64_t first = std::max(at, offset), last = std::min(stop, end);
    std::memcpy(to + (first - offset), bounce() + (first - at), static_cast<size_t>(last - first));
  }
  return {};
}

// Writes bytes. With O_DIRECT whole blocks are written, so a block that changes only in part is
// read first.
Status DiskFile::write(int64_t offset, const std::byte* from, int64_t bytes) {
  if (!direct_) return write_blocks(offset, from, bytes);
  const int64_t end = offset + bytes;
  for (int64_t at = offset / kBlock * kBlock; at < end; at += kBounce) {
    const int64_t stop = std::min(at + kBounce, (end + kBlock - 1) / kBlock * kBlock);
    const int64_t first = std::max(at, offset), last = std::min(stop, end);
    if (first > at) TESSERA_TRY_VOID(read_blocks(at, bounce(), kBlock));
    if (last < stop && (first == at || stop - at > kBlock)) {
      TESSERA_TRY_VOID(read_blocks(stop - kBlock, bounce() + (stop - kBlock - at), kBlock));
    }
    std::memcpy(bounce() + (first - at), from + (first - offset),
                static_cast<size_t>(last - first));
    TESSERA_TRY_VOID(write_blocks(at, bounce(), stop - at));
  }
  return {};
}

}  // namespace tessera
