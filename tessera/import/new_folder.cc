#include "tessera/import/new_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "tessera/base/check.h"
#include "tessera/state/storage.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

// Arrays are written in pieces of this many bytes. A piece of zeros is not written and remains a
// hole.
constexpr int64_t kHoleBytes = 1 << 20;

bool is_zero(const std::byte* data, int64_t bytes) {
  return data[0] == std::byte{0} &&
         std::memcmp(data, data + 1, static_cast<size_t>(bytes - 1)) == 0;
}

std::string reason() { return std::strerror(errno); }  // NOLINT(concurrency-mt-unsafe)

}  // namespace

Result<NewFolder> NewFolder::create(const std::string& path) {
  std::error_code error;
  fs::path out = fs::path(path).lexically_normal();
  if (!out.has_filename()) out = out.parent_path();  // "models/llama/"
  if (out.empty() || fs::exists(fs::symlink_status(out, error))) {
    return invalid_input(
        fmt::format("{}: expected a folder that does not exist yet, found one", path));
  }
  const std::string temporary = fmt::format("{}.partial.{}", out.string(), ::getpid());
  fs::create_directories(out.parent_path().empty() ? fs::path(".") : out.parent_path(), error);
  if (!error) fs::create_directory(temporary, error);
  if (error)
    return invalid_input(fmt::format("{}: cannot make a folder: {}", path, error.message()));
  return NewFolder(out.string(), temporary);
}

NewFolder::NewFolder(NewFolder&& other) noexcept
    : path_(std::move(other.path_)), temporary_(std::move(other.temporary_)) {
  other.temporary_.clear();
}

NewFolder::~NewFolder() {
  if (temporary_.empty()) return;
  std::error_code error;
  fs::remove_all(temporary_, error);
}

std::string NewFolder::file(const std::string& name) const {
  return (fs::path(temporary_) / name).string();
}

Status NewFolder::commit() {
  FileSystem disk;
  TESSERA_TRY_VOID(disk.sync_folder(temporary_));
  std::error_code error;
  fs::rename(temporary_, path_, error);
  if (error) return fault(fmt::format("{}: cannot rename: {}", path_, error.message()));
  temporary_.clear();
  const fs::path parent = fs::path(path_).parent_path();
  return disk.sync_folder(parent.empty() ? "." : parent.string());
}

Result<SafetensorsWriter> SafetensorsWriter::create(
    const std::string& path, std::vector<ArrayEntry> arrays,
    const std::map<std::string, std::string>& metadata) {
  SafetensorsLayout layout = layout_safetensors(std::move(arrays), metadata);
  const int number = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (number < 0) return fault(fmt::format("{}: cannot write: {}", path, reason()));
  SafetensorsWriter writer(path, number, std::move(layout));
  if (::ftruncate(number, writer.layout_.bytes) != 0) {
    return fault(
        fmt::format("{}: cannot write {} bytes: {}", path, writer.layout_.bytes, reason()));
  }
  const std::string& head = writer.layout_.head;
  TESSERA_TRY_VOID(writer.write_at(0, static_cast<int64_t>(head.size()),
                                   reinterpret_cast<const std::byte*>(head.data())));
  return writer;
}

SafetensorsWriter::SafetensorsWriter(SafetensorsWriter&& other) noexcept
    : path_(std::move(other.path_)), number_(other.number_), layout_(std::move(other.layout_)) {
  other.number_ = -1;
}

SafetensorsWriter::~SafetensorsWriter() {
  if (number_ >= 0) ::close(number_);
}

Status SafetensorsWriter::write(size_t array, int64_t offset, int64_t bytes,
                                const std::byte* data) {
  const ArrayEntry& entry = layout_.arrays[array];
  TESSERA_CHECK(offset >= 0 && bytes >= 0 && offset + bytes <= entry.bytes, "{}: bytes {} to {}",
                entry.name, offset, offset + bytes);
  for (int64_t at = 0; at < bytes; at += kHoleBytes) {
    const int64_t piece = std::min(kHoleBytes, bytes - at);
    if (!is_zero(data + at, piece))
      TESSERA_TRY_VOID(write_at(entry.begin + offset + at, piece, data + at));
  }
  return {};
}

Status SafetensorsWriter::write_at(int64_t at, int64_t bytes, const std::byte* data) {
  while (bytes > 0) {
    const ssize_t done = ::pwrite(number_, data, static_cast<size_t>(bytes), at);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return fault(fmt::format("{}: cannot write: {}", path_, reason()));
    at += done;
    bytes -= done;
    data += done;
  }
  return {};
}

Status SafetensorsWriter::finish() {
  if (::fsync(number_) == 0) return {};
  return fault(fmt::format("{}: cannot write: {}", path_, reason()));
}

}  // namespace tessera
