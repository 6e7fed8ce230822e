#include "tessera/runtime/data.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>
#include <string_view>
#include <utility>

#include "tessera/base/check.h"
#include "tessera/base/philox.h"
#include "tessera/base/text.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

bool has_wildcard(std::string_view text) { return text.find_first_of("*?[{") != text.npos; }

// Walks the components of a glob from `at` on; what is found goes into `found`.
class GlobWalk {
 public:
  explicit GlobWalk(const std::string& glob) {
    if (glob.starts_with('/')) root_ = "/";
    for (std::string& part : split_text(glob, '/')) {
      if (!part.empty()) parts_.push_back(std::move(part));
    }
    if (!parts_.empty() && parts_.back() == "**") parts_.push_back("*");
  }

  Result<std::vector<std::string>> run() {
    TESSERA_TRY_VOID(walk(root_, 0));
    return std::vector<std::string>(found_.begin(), found_.end());
  }

 private:
  Status walk(const fs::path& folder, size_t at) {
    std::error_code error;
    if (at == parts_.size()) {
      if (fs::is_regular_file(folder, error)) found_.insert(folder.lexically_normal().string());
      return {};
    }
    const std::string& part = parts_[at];
    if (!has_wildcard(part)) return walk(folder / part, at + 1);
    const bool any_depth = part == "**";
    if (any_depth) TESSERA_TRY_VOID(walk(folder, at + 1));
    const fs::path listed = folder.empty() ? fs::path(".") : folder;
    if (!fs::is_directory(listed, error)) return {};
    fs::directory_iterator entries(listed, error);
    for (; !error && entries != fs::directory_iterator(); entries.increment(error)) {
      const std::string name = entries->path().filename().string();
      if (name.starts_with('.') && !part.starts_with('.')) continue;
      if (!any_depth && !glob_match(part, name)) continue;
      const bool last = at + 1 == parts_.size();
      std::error_code ignored;
      const bool folder_below = entries->is_directory(ignored) && !entries->is_symlink(ignored);
      if (!last && !folder_below) continue;
      TESSERA_TRY_VOID(walk(folder / name, any_depth ? at : at + 1));
    }
    if (error) {
      return invalid_input(
          fmt::format("cannot read the folder '{}': {}", listed.string(), error.message()));
    }
    return {};
  }

  fs::path root_;
  std::vector<std::string> parts_;
  std::set<std::string> found_;
};

std::string no_match(const std::string& glob) {
  std::error_code ignored;
  if (fs::is_directory(glob, ignored)) {
    return fmt::format("'{}' is a folder; '{}' names the files in it", glob,
                       (fs::path(glob) / "**").string());
  }
  return fmt::format("no file matches '{}'", glob);
}

tl::unexpected<Error> data_error(std::string_view message) {
  return invalid_input(fmt::format("data: {}", message));
}

// A file's bytes. The mapping outlives the descriptor.
class MappedFile {
 public:
  static Result<MappedFile> open(const std::string& path) {
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) return cannot_read(path);
    struct stat status {};
    void* memory = nullptr;
    bool ok = ::fstat(descriptor, &status) == 0;
    const auto size = static_cast<size_t>(ok ? status.st_size : 0);
    if (ok && size > 0) {
      memory = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
      ok = memory != MAP_FAILED;
    }
    const int error = errno;
    ::close(descriptor);
    errno = error;
    if (!ok) return cannot_read(path);
    return MappedFile(memory, size);
  }
  MappedFile(MappedFile&& other) noexcept
      : memory_(std::exchange(other.memory_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  MappedFile& operator=(MappedFile&& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(size_, other.size_);
    return *this;
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile() {
    if (memory_ != nullptr) ::munmap(memory_, size_);
  }

  int64_t size() const { return static_cast<int64_t>(size_); }
  const unsigned char* bytes() const { return static_cast<const unsigned char*>(memory_); }

 private:
  MappedFile(void* memory, size_t size) : memory_(memory), size_(size) {}
  static tl::unexpected<Error> cannot_read(const std::string& path) {
    return data_error(fmt::format("cannot read '{}': {}", path, std::strerror(errno)));
  }
  void* memory_;
  size_t size_;
};

}  // namespace

Result<std::vector<std::string>> match_files(const std::string& glob) {
  return GlobWalk(glob).run();
}

struct TextData::Impl {
  int64_t seq = 0;
  int64_t bytes = 0;
  std::vector<MappedFile> files;
  std::vector<int64_t> first_window;  // by file, and the number of all windows at the end
};

TextData::TextData() : impl_(std::make_unique<Impl>()) {}
TextData::~TextData() = default;
TextData::TextData(TextData&&) noexcept = default;
TextData& TextData::operator=(TextData&&) noexcept = default;

Result<TextData> TextData::open(const std::vector<std::string>& globs, int64_t seq) {
  if (globs.empty()) return data_error("expected at least one file or glob");
  std::set<std::string> paths;
  for (const std::string& glob : globs) {
    const auto found = match_files(glob);
    if (!found) return data_error(found.error().message);
    if (found->empty()) return data_error(no_match(glob));
    paths.insert(found->begin(), found->end());
  }
  TextData data;
  data.impl_->seq = seq;
  data.impl_->first_window.push_back(0);
  std::string longest;
  int64_t longest_size = -1;
  for (const std::string& path : paths) {
    TESSERA_TRY(MappedFile file, MappedFile::open(path));
    if (file.size() > longest_size) {
      longest = path;
      longest_size = file.size();
    }
    if (file.size() <= seq) continue;
    data.impl_->bytes += file.size();
    data.impl_->first_window.push_back(data.impl_->first_window.back() + file.size() - seq);
    data.impl_->files.push_back(std::move(file));
  }
  if (data.impl_->files.empty()) {
    return data_error(
        fmt::format("expected a file of more than {} bytes (seq = {}), the longest of {}, '{}', "
                    "has {}",
                    seq, seq, paths.size(), longest, longest_size));
  }
  return data;
}

int64_t TextData::files() const { return static_cast<int64_t>(impl_->files.size()); }
int64_t TextData::bytes() const { return impl_->bytes; }

void TextData::read(int64_t seed, int64_t step, int64_t sequence, int64_t offset, int64_t count,
                    int64_t* out) const {
  TESSERA_CHECK(offset >= 0 && count >= 0 && offset + count <= impl_->seq + 1,
                "tokens {} + {} of a sequence of {}", offset, count, impl_->seq);
  constexpr std::string_view kStream = "data";
  const Philox philox{static_cast<uint64_t>(seed),
                      stable_hash(kStream.data(), kStream.size(), static_cast<uint64_t>(step))};
  const auto words = philox.block(static_cast<uint64_t>(sequence));
  const uint64_t draw = (uint64_t{words[0]} << 32) | words[1];
  const auto& first = impl_->first_window;
  const auto window = static_cast<int64_t>(draw % static_cast<uint64_t>(first.back()));
  const auto above = std::upper_bound(first.begin(), first.end(), window);
  const auto file = static_cast<size_t>(above - first.begin()) - 1;
  const unsigned char* from = impl_->files[file].bytes() + (window - first[file]) + offset;
  std::copy(from, from + count, out);
}

}  // namespace tessera
