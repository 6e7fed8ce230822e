// Reads a zip archive entry by entry and by ranges of bytes. No size that the archive states is
// trusted, so memory for an entry is allocated only after its size was checked against the length
// of the file and a limit. No byte is trusted before the checksum of its entry was compared, so a
// caller that gets pieces must drop what it made of them if the call fails.
//
//   TESSERA_TRY(const Archive archive, Archive::open("model.pt2"));
//   TESSERA_TRY(const std::string text, archive.text("models/model.json"));
//   TESSERA_TRY_VOID(archive.read("data/weights/weight_0", 0, bytes, [&](std::span<const char> piece) {
//     return writer.append(piece);
//   }));
//
// Errors name the file and the entry. Two threads must not read an archive at the same time.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/result.h"

namespace tessera::pt2 {

class Archive {
 public:
  static Result<Archive> open(const std::string& path);

  const std::string& path() const { return path_; }
  // Returns the names of the entries without the root folder, in the order of the archive.
  const std::vector<std::string>& names() const { return names_; }
  bool has(std::string_view name) const;
  Result<int64_t> size(std::string_view name) const;
  // Returns a whole entry of at most kMaxText bytes.
  Result<std::string> text(std::string_view name) const;
  // Reads `bytes` bytes of an entry from `offset` on, in order, and calls `visit` for each piece. A
  // piece is valid only during that call of `visit`. The first read() of an entry reads the whole
  // entry to compare the checksum; later ones read only up to the end of their range.
  using Visit = std::function<Status(std::span<const char>)>;
  Status read(std::string_view name, int64_t offset, int64_t bytes, const Visit& visit) const;

 private:
  struct Entry {
    uint64_t index = 0;
    int64_t size = 0;
    bool stored = true;  // not compressed, so that a range can be read without what precedes it
  };
  struct Zip;  // libzip's handle
  Archive() = default;
  Result<Entry> find(std::string_view name) const;

  std::string path_;
  std::shared_ptr<Zip> zip_;
  std::vector<std::string> names_;
  std::map<std::string, Entry, std::less<>> entries_;
  mutable std::set<uint64_t> compared_;  // indices of the entries whose checksum was right
};

}  // namespace tessera::pt2
