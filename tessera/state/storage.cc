#include "tessera/state/storage.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <utility>

namespace tessera {
namespace {

namespace fs = std::filesystem;

tl::unexpected<Error> failed(const std::string& path, const char* what, int error) {
  return fault(fmt::format("{}: cannot {}: {}", path, what,
                           std::strerror(error)));  // NOLINT(concurrency-mt-unsafe)
}

class PosixFile : public StorageFile {
 public:
  PosixFile(std::string path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}
  ~PosixFile() override { ::close(descriptor_); }
  PosixFile(const PosixFile&) = delete;
  PosixFile& operator=(const PosixFile&) = delete;

  Status write(const std::byte* data, int64_t bytes) override {
    while (bytes > 0) {
      const int64_t direct = direct_bytes(data, bytes);
      set_direct(direct > 0);
      if (is_direct_ && direct == 0) return failed(path_, "write", EINVAL);
      const int64_t some = is_direct_ ? direct : bytes;
      const ssize_t written = ::write(descriptor_, data, static_cast<size_t>(some));
      if (written < 0 && errno == EINTR) continue;
      // A device whose blocks are larger than kStorageBlock refuses a direct write; the bytes then
      // go through the page cache.
      if (written < 0 && errno == EINVAL && is_direct_) {
        can_direct_ = false;
        continue;
      }
      if (written < 0) return failed(path_, "write", errno);
      data += written;
      bytes -= written;
      at_ += written;
    }
    return {};
  }
  Status sync() override {
    if (::fsync(descriptor_) == 0) return {};
    return failed(path_, "write", errno);
  }

 private:
  // Returns how many of the bytes may be written to the device directly: whole blocks if there are
  // many bytes, else 0.
  int64_t direct_bytes(const std::byte* data, int64_t bytes) const {
    constexpr int64_t kFewest = 1 << 20;
    const bool aligned = reinterpret_cast<uintptr_t>(data) % kStorageBlock == 0 &&  // NOLINT
                         at_ % kStorageBlock == 0;
    return can_direct_ && aligned && bytes >= kFewest ? bytes / kStorageBlock * kStorageBlock : 0;
  }
  void set_direct([[maybe_unused]] bool direct) {
    if (direct == is_direct_) return;
#ifdef O_DIRECT
    const int flags = ::fcntl(descriptor_, F_GETFL);
    const int wanted = direct ? flags | O_DIRECT : flags & ~O_DIRECT;
    if (flags >= 0 && ::fcntl(descriptor_, F_SETFL, wanted) == 0) {
      is_direct_ = direct;
      return;
    }
#endif
    can_direct_ = false;  // the file system, in memory or on a network, lacks O_DIRECT
  }

  std::string path_;
  int descriptor_;
  int64_t at_ = 0;  // written so far
  bool can_direct_ = true, is_direct_ = false;
};

}  // namespace

Status FileSystem::make_folder(const std::string& path) {
  std::vector<std::string> missing;
  std::error_code error;
  for (std::string at = path; !fs::is_directory(at, error); at = parent_of(at)) {
    missing.push_back(at);
    if (parent_of(at) == at) break;
  }
  for (auto at = missing.rbegin(); at != missing.rend(); ++at) {
    constexpr mode_t kMode = 0777;
    // The folder may exist by now, because another rank has made it.
    if (::mkdir(at->c_str(), kMode) != 0 && !(errno == EEXIST && fs::is_directory(*at, error)))
      return failed(*at, "make the folder", errno);
    TESSERA_TRY_VOID(sync_folder(parent_of(*at)));
  }
  return {};
}

Result<std::unique_ptr<StorageFile>> FileSystem::create(const std::string& path) {
  constexpr mode_t kMode = 0666;
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, kMode);
  if (descriptor < 0) return failed(path, "create", errno);
  return std::make_unique<PosixFile>(path, descriptor);
}

Status FileSystem::sync_folder(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return failed(path, "open the folder", errno);
  const int error = ::fsync(descriptor) == 0 ? 0 : errno;
  ::close(descriptor);
  // Some file systems have nothing to sync for a folder and report EINVAL.
  if (error == 0 || error == EINVAL) return {};
  return failed(path, "sync the folder", error);
}

Status FileSystem::rename(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) == 0) return {};
  return failed(from, ("rename to " + to).c_str(), errno);
}

Status FileSystem::remove_file(const std::string& path) {
  if (::unlink(path.c_str()) == 0) return {};
  return failed(path, "remove", errno);
}

Status FileSystem::remove_folder(const std::string& path) {
  if (::rmdir(path.c_str()) == 0) return {};
  return failed(path, "remove the folder", errno);
}

Result<std::vector<std::string>> FileSystem::list(const std::string& path) {
  std::vector<std::string> names;
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  const bool no_such =
      error.value() == ELOOP || error.value() == ENOTDIR || error.value() == ENAMETOOLONG;
  const bool no_folder = error ? no_such : !fs::is_directory(status);
  if (no_folder || status.type() == fs::file_type::not_found) return names;
  if (error) return failed(path, "list", error.value());
  for (fs::directory_iterator at(path, error), end; !error && at != end; at.increment(error))
    names.push_back(at->path().filename().string());
  if (error) return failed(path, "list", error.value());
  std::sort(names.begin(), names.end());
  return names;
}

Result<int64_t> FileSystem::free_bytes(const std::string& path) {
  std::string at = path;
  std::error_code error;
  while (!fs::exists(at, error) && parent_of(at) != at) at = parent_of(at);
  struct statvfs status {};
  if (::statvfs(at.c_str(), &status) != 0) return failed(at, "find its free room", errno);
  return static_cast<int64_t>(status.f_bavail) * static_cast<int64_t>(status.f_frsize);
}

std::string path_in(const std::string& folder, const std::string& name) {
  return folder.empty() || folder.back() == '/' ? folder + name : folder + "/" + name;
}

std::string parent_of(const std::string& path) {
  const size_t last = path.find_last_not_of('/');
  if (last == std::string::npos) return path.empty() ? "." : "/";
  const size_t slash = path.rfind('/', last);
  if (slash == std::string::npos) return ".";
  const size_t end = path.find_last_not_of('/', slash);
  return end == std::string::npos ? "/" : path.substr(0, end + 1);
}

}  // namespace tessera
