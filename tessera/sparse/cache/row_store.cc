#include "tessera/sparse/cache/row_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <limits>
#include <mutex>
#include <utility>

#include "tessera/base/check.h"

namespace tessera::sparse {
namespace {

constexpr int64_t kHead = 4096;
constexpr std::string_view kMagic = "TSRROWS1";

Status check_shape(const std::string& path, RowShape shape) {
  const bool good = shape.rows > 0 && shape.row_bytes > 0;
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max() / 2;
  if (good && shape.rows <= kMost / shape.row_bytes) return {};
  return invalid_input(
      fmt::format("'{}': expected at least one row of at least one byte, below "
                  "2^62 bytes in all, found {} rows of {} bytes",
                  path, shape.rows, shape.row_bytes));
}

// Repeats `call` until all bytes are transferred. Returns 0, the errno of a failed call, or -1 if
// the file ends too early.
template <class Call>
int transfer(Call call, int64_t count) {
  for (int64_t done = 0; done < count;) {
    const ssize_t part = call(done);
    if (part < 0 && errno == EINTR) continue;
    if (part <= 0) return part == 0 ? -1 : errno;
    done += part;
  }
  return 0;
}

int read_at(int descriptor, void* out, int64_t count, int64_t at) {
  return transfer(
      [&](int64_t done) {
        return ::pread(descriptor, static_cast<char*>(out) + done,
                       static_cast<size_t>(count - done), at + done);
      },
      count);
}

int write_at(int descriptor, const void* in, int64_t count, int64_t at) {
  return transfer(
      [&](int64_t done) {
        return ::pwrite(descriptor, static_cast<const char*>(in) + done,
                        static_cast<size_t>(count - done), at + done);
      },
      count);
}

std::string reason(int error) { return error < 0 ? "the file ends before" : std::strerror(error); }

}  // namespace

struct FileRows::Locks {
  std::array<std::mutex, 64> of;
};

FileRows::FileRows(std::string path, RowShape shape, RowInit init, int descriptor)
    : RowStore(shape),
      path_(std::move(path)),
      init_(std::move(init)),
      descriptor_(descriptor),
      locks_(std::make_unique<Locks>()) {}

FileRows::~FileRows() { ::close(descriptor_); }

Result<std::unique_ptr<FileRows>> FileRows::open(const std::string& path, RowShape shape,
                                                 RowInit init) {
  TESSERA_TRY_VOID(check_shape(path, shape));
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (descriptor < 0) {
    return invalid_input(fmt::format("cannot open '{}': {}", path, std::strerror(errno)));
  }
  std::unique_ptr<FileRows> file(new FileRows(path, shape, std::move(init), descriptor));
  TESSERA_TRY_VOID(file->open_or_make());
  return file;
}

int64_t FileRows::marks_at() const { return kHead + rows() * row_bytes(); }

std::string FileRows::head() const {
  std::string head(kMagic);
  for (const int64_t value : {rows(), row_bytes()}) {
    head.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  return head;
}

Status FileRows::open_or_make() {
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0) {
    return fault(fmt::format("cannot read '{}': {}", path_, std::strerror(errno)));
  }
  const int64_t size = marks_at() + (rows() + 7) / 8;
  const std::string head = this->head();
  if (status.st_size == 0) {
    int error = write_at(descriptor_, head.data(), std::ssize(head), 0);
    if (error == 0 && ::ftruncate(descriptor_, size) != 0) error = errno;
    if (error != 0) {
      if (S_ISREG(status.st_mode)) ::unlink(path_.c_str());  // leaves no incomplete file behind
      return fault(fmt::format("cannot write '{}': {}", path_, reason(error)));
    }
    return {};
  }
  std::string found(head.size(), '\0');
  const int error = read_at(descriptor_, found.data(), std::ssize(found), 0);
  if (error != 0 || !found.starts_with(kMagic)) {
    return invalid_input(
        fmt::format("'{}': expected a file of rows (TSRROWS1), found another head", path_));
  }
  if (found != head) {
    std::array<int64_t, 2> shape{};
    std::memcpy(shape.data(), found.data() + kMagic.size(), sizeof shape);
    return invalid_input(fmt::format("'{}': expected {} rows of {} bytes, found {} of {}", path_,
                                     rows(), row_bytes(), shape[0], shape[1]));
  }
  if (status.st_size != size) {
    return invalid_input(
        fmt::format("'{}': expected {} bytes, found {}", path_, size, status.st_size));
  }
  return {};
}

Status FileRows::read(int64_t row, std::byte* out) {
  uint8_t marks = 0;
  int error = init_ ? read_at(descriptor_, &marks, 1, marks_at() + row / 8) : 0;
  if (error == 0 && init_ && (marks >> (row % 8) & 1) == 0) {
    init_(row, out);
    return {};
  }
  if (error == 0) error = read_at(descriptor_, out, row_bytes(), kHead + row * row_bytes());
  if (error == 0) return {};
  return fault(fmt::format("cannot read row {} of '{}': {}", row, path_, reason(error)));
}

// Writes the row before its mark, so that a marked row is always complete.
Status FileRows::write(int64_t row, const std::byte* in) {
  int error = write_at(descriptor_, in, row_bytes(), kHead + row * row_bytes());
  if (error == 0) {
    const std::scoped_lock lock(locks_->of[static_cast<size_t>(row / 8) % locks_->of.size()]);
    uint8_t marks = 0;
    error = read_at(descriptor_, &marks, 1, marks_at() + row / 8);
    const auto marked = static_cast<uint8_t>(marks | 1U << (row % 8));
    if (error == 0 && marked != marks) {
      error = write_at(descriptor_, &marked, 1, marks_at() + row / 8);
    }
  }
  if (error == 0) return {};
  return fault(fmt::format("cannot write row {} of '{}': {}", row, path_, reason(error)));
}

Status FileRows::sync() {
  if (::fsync(descriptor_) == 0) return {};
  return fault(fmt::format("cannot write '{}': {}", path_, std::strerror(errno)));
}

int64_t FileRows::disk_bytes() const {
  struct stat status {};
  return ::fstat(descriptor_, &status) == 0 ? int64_t{status.st_blocks} * 512 : 0;
}

}  // namespace tessera::sparse
