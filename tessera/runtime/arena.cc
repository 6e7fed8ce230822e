#include "tessera/runtime/arena.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "tessera/base/text.h"

namespace tessera {
namespace {

constexpr int64_t kHugePage = 2 << 20;

Result<int> open_unnamed_file(int64_t bytes) {
  const char* folder = std::getenv("TMPDIR");
  std::string path =
      std::string(folder != nullptr && *folder != '\0' ? folder : "/tmp") + "/tessera.XXXXXX";
  const int file = mkstemp(path.data());
  if (file < 0) return fault(fmt::format("disk tier: {}: {}", path, std::strerror(errno)));
  unlink(path.c_str());
  if (const int error = posix_fallocate(file, 0, bytes); error != 0) {
    close(file);
    return fault(fmt::format("disk tier: {}: expected room for {}: {}", path, format_bytes(bytes),
                             std::strerror(error)));
  }
  return file;
}

}  // namespace

Result<Arena> Arena::create(Tier tier, int64_t bytes) {
  Arena arena;
  if (bytes == 0) return arena;
  const auto size = static_cast<size_t>(bytes);
  void* memory = MAP_FAILED;
  if (tier == Tier::kDisk) {
    TESSERA_TRY(const int file, open_unnamed_file(bytes));
    memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
  } else {
    memory = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
#ifdef MADV_HUGEPAGE
    if (memory != MAP_FAILED && bytes >= 2 * kHugePage) madvise(memory, size, MADV_HUGEPAGE);
#endif
  }
  if (memory == MAP_FAILED) {
    return fault(fmt::format("{} tier: expected {} of memory: {}", tier_name(tier),
                             format_bytes(bytes), std::strerror(errno)));
  }
  arena.data_ = static_cast<std::byte*>(memory);
  arena.bytes_ = bytes;
  return arena;
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

}  // namespace tessera
