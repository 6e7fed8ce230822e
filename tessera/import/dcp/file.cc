#include "tessera/import/dcp/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "tessera/base/one_line.h"

namespace tessera::dcp {
namespace {

constexpr uint32_t kLocal = 0x04034b50, kCentral = 0x02014b50, kEnd = 0x06054b50,
                   kEnd64 = 0x06064b50, kLocator64 = 0x07064b50;
constexpr int64_t kLocalBytes = 30, kCentralBytes = 46, kEndBytes = 22, kEnd64Bytes = 56,
                  kLocatorBytes = 20;
constexpr uint32_t kIn64 = 0xffffffff;  // the number is in an extra field
constexpr uint16_t kZip64 = 1;          // the extra field's id
constexpr int64_t kMostDirectory = 16 << 20;

uint64_t number(std::string_view bytes, size_t at, size_t width) {
  uint64_t value = 0;
  for (size_t i = width; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[at + i]);
  return value;
}

// Reads the archive that is one range of a file.
class ArchiveReader {
 public:
  ArchiveReader(const File& file, int64_t offset, int64_t length)
      : file_(file), offset_(offset), length_(length) {}

  Result<std::map<std::string, Range>> entries() const {
    TESSERA_TRY(const Directory directory, find_directory());
    TESSERA_TRY(const std::string text, read(directory.begin, directory.bytes));
    std::map<std::string, Range> out;
    size_t at = 0;
    for (uint64_t i = 0; i < directory.count; ++i) {
      if (at + kCentralBytes > text.size() || number(text, at, 4) != kCentral)
        return error(fmt::format("{} entries in its directory", directory.count),
                     std::to_string(i));
      TESSERA_TRY_VOID(add(text, at, out));
    }
    return out;
  }

 private:
  struct Directory {
    int64_t begin = 0, bytes = 0;
    uint64_t count = 0;
  };

  tl::unexpected<Error> error(const std::string& expected, const std::string& found) const {
    return invalid_input(fmt::format("{}: bytes {} to {}: expected a zip archive with {}, found {}",
                                     file_.path(), offset_, offset_ + length_, expected,
                                     short_line(found)));
  }
  Result<std::string> read(int64_t begin, int64_t bytes) const {
    if (begin < 0 || bytes < 0 || begin > length_ || bytes > length_ - begin)
      return error(fmt::format("{} bytes from byte {} on", bytes, begin), "fewer");
    return file_.text(offset_ + begin, bytes);
  }

  Result<Directory> find_directory() const {
    if (length_ < kEndBytes) return error("an end", fmt::format("{} bytes", length_));
    TESSERA_TRY(const std::string end, read(length_ - kEndBytes, kEndBytes));
    if (number(end, 0, 4) != kEnd) return error("an end", "none: the archive is torn");
    Directory out{static_cast<int64_t>(number(end, 16, 4)),
                  static_cast<int64_t>(number(end, 12, 4)), number(end, 10, 2)};
    if (out.begin == kIn64 || out.bytes == kIn64 || out.count == 0xffff) {
      TESSERA_TRY(const std::string locator,
                  read(length_ - kEndBytes - kLocatorBytes, kLocatorBytes));
      if (number(locator, 0, 4) != kLocator64) return error("the place of its zip64 end", "none");
      TESSERA_TRY(const std::string large,
                  read(static_cast<int64_t>(number(locator, 8, 8)), kEnd64Bytes));
      if (number(large, 0, 4) != kEnd64) return error("a zip64 end", "none");
      out = {static_cast<int64_t>(number(large, 48, 8)), static_cast<int64_t>(number(large, 40, 8)),
             number(large, 32, 8)};
    }
    if (out.bytes < 0 || out.bytes > kMostDirectory)
      return error(fmt::format("a directory of at most {} bytes", kMostDirectory),
                   std::to_string(out.bytes));
    return out;
  }

  // Adds the entry of the directory at `at`, and moves `at` behind it.
  Status add(const std::string& text, size_t& at, std::map<std::string, Range>& out) const {
    const size_t name_bytes = number(text, at + 28, 2), extra_bytes = number(text, at + 30, 2),
                 comment_bytes = number(text, at + 32, 2);
    const size_t name_at = at + kCentralBytes, extra_at = name_at + name_bytes;
    if (extra_at + extra_bytes + comment_bytes > text.size())
      return error("a whole directory", "a torn one");
    const std::string name = text.substr(name_at, name_bytes);
    const uint64_t method = number(text, at + 10, 2);
    uint64_t packed = number(text, at + 20, 4), bytes = number(text, at + 24, 4),
             begin = number(text, at + 42, 4);
    read_extra(std::string_view(text).substr(extra_at, extra_bytes), {&bytes, &packed, &begin});
    at = extra_at + extra_bytes + comment_bytes;
    if (method != 0 || packed != bytes)
      return error(fmt::format("'{}' without compression", short_line(name)), "it compressed");
    TESSERA_TRY(const std::string local, read(static_cast<int64_t>(begin), kLocalBytes));
    if (number(local, 0, 4) != kLocal)
      return error(fmt::format("'{}' where its directory says", short_line(name)), "other bytes");
    const Range data{static_cast<int64_t>(begin) + kLocalBytes +
                         static_cast<int64_t>(number(local, 26, 2) + number(local, 28, 2)),
                     static_cast<int64_t>(bytes)};
    if (data.bytes < 0 || data.begin > length_ || data.bytes > length_ - data.begin)
      return error(fmt::format("the {} bytes of '{}'", bytes, short_line(name)), "fewer");
    const std::string inner = name.substr(name.find('/') + 1);
    if (!out.emplace(inner, Range{offset_ + data.begin, data.bytes}).second)
      return error("each entry once", fmt::format("'{}' twice", inner));
    return {};
  }

  // Replaces those of the numbers that are kIn64, in order, by those of the zip64 field.
  static void read_extra(std::string_view extra, std::initializer_list<uint64_t*> numbers) {
    while (extra.size() >= 4) {
      const size_t id = number(extra, 0, 2), bytes = number(extra, 2, 2);
      if (bytes > extra.size() - 4) return;
      std::string_view field = extra.substr(4, bytes);
      extra.remove_prefix(4 + bytes);
      if (id != kZip64) continue;
      for (uint64_t* one : numbers) {
        if (*one != kIn64 || field.size() < 8) continue;
        *one = number(field, 0, 8);
        field.remove_prefix(8);
      }
    }
  }

  const File& file_;
  int64_t offset_, length_;
};

}  // namespace

struct File::Descriptor {
  explicit Descriptor(int opened) : number(opened) {}
  ~Descriptor() { ::close(number); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int number;
};

Result<File> File::open(const std::string& path) {
  const auto error = [&](const std::string& found) {
    return invalid_input(
        fmt::format("{}: expected a file that can be read, found {}", path, found));
  };
  const int number = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (number < 0) return error(std::strerror(errno));  // NOLINT(concurrency-mt-unsafe)
  File file;
  file.path_ = path;
  file.descriptor_ = std::make_shared<Descriptor>(number);
  struct stat status {};
  if (::fstat(number, &status) != 0 || !S_ISREG(status.st_mode)) return error("something else");
  file.bytes_ = static_cast<int64_t>(status.st_size);
  return file;
}

Status File::read(int64_t offset, int64_t bytes, std::byte* out) const {
  while (bytes > 0) {
    const ssize_t got =
        ::pread(descriptor_->number, out, static_cast<size_t>(bytes), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      return fault(fmt::format("{}: cannot read: {}", path_,
                               std::strerror(errno)));  // NOLINT(concurrency-mt-unsafe)
    }
    if (got == 0) {
      return invalid_input(fmt::format("{}: expected {} more bytes at byte {}, found the end",
                                       path_, bytes, offset));
    }
    offset += got;
    bytes -= got;
    out += got;
  }
  return {};
}

Result<std::string> File::text(int64_t offset, int64_t bytes) const {
  if (offset < 0 || bytes < 0 || offset > bytes_ || bytes > bytes_ - offset) {
    return invalid_input(fmt::format("{}: expected {} bytes at byte {}, found {} in all", path_,
                                     bytes, offset, bytes_));
  }
  std::string out(static_cast<size_t>(bytes), '\0');
  TESSERA_TRY_VOID(read(offset, bytes, reinterpret_cast<std::byte*>(out.data())));
  return out;
}

Result<std::map<std::string, Range>> entries_of(const File& file, int64_t offset, int64_t length) {
  if (offset < 0 || length < 0 || offset > file.bytes() || length > file.bytes() - offset) {
    return invalid_input(fmt::format("{}: expected an archive at bytes {} to {}, found {} in all",
                                     file.path(), offset, offset + length, file.bytes()));
  }
  return ArchiveReader(file, offset, length).entries();
}

}  // namespace tessera::dcp
