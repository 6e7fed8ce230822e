#include "tessera/import/pt2/archive.h"

#include <fmt/format.h>
#include <zip.h>

#include <algorithm>
#include <filesystem>

#include "tessera/import/pt2/names.h"

namespace tessera::pt2 {
namespace {

constexpr int64_t kPieceBytes = 4 << 20;

// Closes an entry that libzip opened, without writing anything back.
struct CloseEntry {
  void operator()(zip_file_t* file) const { zip_fclose(file); }
};
using OpenEntry = std::unique_ptr<zip_file_t, CloseEntry>;

}  // namespace

struct Archive::Zip {
  explicit Zip(zip_t* opened) : handle(opened) {}
  Zip(const Zip&) = delete;
  Zip& operator=(const Zip&) = delete;
  ~Zip() { zip_discard(handle); }
  zip_t* handle;
};

Result<Archive> Archive::open(const std::string& path) {
  std::error_code failed;
  const std::uintmax_t length = std::filesystem::file_size(path, failed);
  if (failed) {
    return invalid_input(
        fmt::format("{}: expected a .pt2 archive, found no file that can be read", path));
  }
  int code = 0;
  zip_t* const handle = zip_open(path.c_str(), ZIP_RDONLY, &code);
  if (handle == nullptr) {
    zip_error_t error;
    zip_error_init_with_code(&error, code);
    const std::string reason = zip_error_strerror(&error);
    zip_error_fini(&error);
    return invalid_input(
        fmt::format("{}: expected a .pt2 archive (a zip file), found: {}", path, reason));
  }
  Archive archive;
  archive.path_ = path;
  archive.zip_ = std::make_shared<Zip>(handle);
  const zip_int64_t count = zip_get_num_entries(handle, 0);
  if (count < 1 || count > kMaxEntries) {
    return invalid_input(
        fmt::format("{}: expected between 1 and {} entries in the archive, found {}", path,
                    kMaxEntries, count));
  }
  std::string root;
  for (zip_int64_t i = 0; i < count; ++i) {
    zip_stat_t stat;
    zip_stat_init(&stat);
    const auto index = static_cast<zip_uint64_t>(i);
    constexpr zip_uint64_t kNeeded =
        ZIP_STAT_NAME | ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE | ZIP_STAT_COMP_METHOD;
    if (zip_stat_index(handle, index, 0, &stat) != 0 || (stat.valid & kNeeded) != kNeeded) {
      return invalid_input(fmt::format(
          "{}: expected name and size of entry {} of the archive, found none", path, i));
    }
    const std::string name = stat.name;
    if (i == 0) root = name.substr(0, name.find('/') + 1);
    if (!name.starts_with(root)) {
      return invalid_input(
          fmt::format("{}: expected all entries in the folder '{}', found '{}'", path, root, name));
    }
    const bool stored = stat.comp_method == ZIP_CM_STORE;
    if (stat.size > length || (stored && stat.comp_size > length)) {
      return invalid_input(fmt::format(
          "{}: entry '{}': expected an entry without compression, no longer than the file's {} "
          "bytes, found {} bytes",
          path, name, length, stat.size));
    }
    const std::string inner = name.substr(root.size());
    archive.names_.push_back(inner);
    const Entry entry{.index = index, .size = static_cast<int64_t>(stat.size), .stored = stored};
    if (!archive.entries_.emplace(inner, entry).second) {
      return invalid_input(
          fmt::format("{}: expected each entry once, found '{}' twice", path, name));
    }
  }
  return archive;
}

bool Archive::has(std::string_view name) const { return entries_.contains(name); }

Result<Archive::Entry> Archive::find(std::string_view name) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) {
    return invalid_input(
        fmt::format("{}: expected an entry '{}' in the archive, found none", path_, name));
  }
  return found->second;
}

Result<int64_t> Archive::size(std::string_view name) const {
  TESSERA_TRY(const Entry entry, find(name));
  return entry.size;
}

Result<std::string> Archive::text(std::string_view name) const {
  TESSERA_TRY(const Entry entry, find(name));
  if (entry.size > kMaxText) {
    return invalid_input(fmt::format("{}: entry '{}': expected at most {} bytes of text, found {}",
                                     path_, name, kMaxText, entry.size));
  }
  std::string out;
  out.reserve(static_cast<size_t>(entry.size));
  TESSERA_TRY_VOID(read(name, 0, entry.size, [&](std::span<const char> piece) -> Status {
    out.append(piece.begin(), piece.end());
    return {};
  }));
  return out;
}

Status Archive::read(std::string_view name, int64_t offset, int64_t bytes,
                     const Visit& visit) const {
  TESSERA_TRY(const Entry entry, find(name));
  if (offset < 0 || bytes < 0 || offset > entry.size || bytes > entry.size - offset) {
    return invalid_input(fmt::format("{}: entry '{}': expected {} bytes from byte {} on, found {}",
                                     path_, name, bytes, offset, entry.size));
  }
  const OpenEntry file(zip_fopen_index(zip_->handle, entry.index, 0));
  const auto failed = [&] {
    return invalid_input(
        fmt::format("{}: entry '{}': expected {} bytes that can be read, found: {}", path_, name,
                    entry.size, file ? zip_file_strerror(file.get()) : zip_strerror(zip_->handle)));
  };
  if (!file) return failed();
  // libzip compares the checksum of an entry only if the entry is read from its beginning to its
  // end. So the first read of an entry reads all of it.
  const bool compared = compared_.contains(entry.index);
  const bool skip = compared && entry.stored;
  if (skip && zip_fseek(file.get(), offset, SEEK_SET) != 0) return failed();
  int64_t at = skip ? offset : 0;
  const int64_t wanted_end = offset + bytes, end = compared ? wanted_end : entry.size;
  std::vector<char> piece(static_cast<size_t>(std::min(kPieceBytes, end - at)));
  while (at < end) {
    const auto most = static_cast<zip_uint64_t>(std::min(kPieceBytes, end - at));
    const zip_int64_t got = zip_fread(file.get(), piece.data(), most);
    if (got <= 0) return failed();
    const int64_t from = std::max(at, offset), to = std::min(at + got, wanted_end);
    if (from < to) {
      const std::span<const char> all(piece);
      TESSERA_TRY_VOID(
          visit(all.subspan(static_cast<size_t>(from - at), static_cast<size_t>(to - from))));
    }
    at += got;
  }
  if (compared) return {};
  char beyond = 0;
  if (zip_fread(file.get(), &beyond, 1) != 0) return failed();
  compared_.insert(entry.index);
  return {};
}

}  // namespace tessera::pt2
