#include "tessera/data/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace tessera {

Result<MappedFile> MappedFile::open(const std::string& path) {
  const auto cannot_read = [&](int error) {
    return invalid_input(fmt::format("cannot read '{}': {}", path, std::strerror(error)));
  };
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return cannot_read(errno);
  struct stat status {};
  bool ok = ::fstat(descriptor, &status) == 0;
  if (ok && !S_ISREG(status.st_mode)) {  // a folder, a pipe or a device
    ::close(descriptor);
    return invalid_input(fmt::format("cannot read '{}': expected a regular file, found {}", path,
                                     S_ISDIR(status.st_mode) ? "a folder" : "a device or a pipe"));
  }
  MappedFile file;
  file.size_ = static_cast<size_t>(ok ? status.st_size : 0);
  if (ok && file.size_ > 0) {
    void* memory = ::mmap(nullptr, file.size_, PROT_READ, MAP_PRIVATE, descriptor, 0);
    ok = memory != MAP_FAILED;
    if (ok) file.memory_ = memory;
  }
  const int error = errno;
  ::close(descriptor);
  if (!ok) return cannot_read(error);
  return file;
}

MappedFile::~MappedFile() {
  if (memory_ != nullptr) ::munmap(memory_, size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : memory_(std::exchange(other.memory_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(memory_, other.memory_);
  std::swap(size_, other.size_);
  return *this;
}

}  // namespace tessera
