// A zip archive, read entry by entry and by ranges of bytes. PyTorch stores entries without
// compression, so a range costs its own bytes only. No size that the archive claims is believed: an
// entry is allocated for after it was checked against the length of the file and a limit.
//
//   TESSERA_TRY(const Archive archive, Archive::open("model.pt2"));
//   TESSERA_TRY(const std::string text, archive.text("models/model.json"));
//   TESSERA_TRY_VOID(archive.read("data/weights/weight_0", 0, bytes));
//
// Errors name the file and the entry. Not safe to be read by two threads at a time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
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
  // Names without the root folder, in the order of the archive.
  const std::vector<std::string>& names() const { return names_; }
  bool has(std::string_view name) const;
  Result<int64_t> size(std::string_view name) const;
  // A whole entry of at most kMaxText bytes.
  Result<std::string> text(std::string_view name) const;
  // The bytes of an entry from `offset` on, as many as `out` has.
  Status read(std::string_view name, int64_t offset, std::span<char> out) const;

 private:
  struct Entry {
    uint64_t index = 0;
    int64_t size = 0;
  };
  struct Zip;  // libzip's handle
  Archive() = default;
  Result<Entry> find(std::string_view name) const;

  std::string path_;
  std::shared_ptr<Zip> zip_;
  std::vector<std::string> names_;
  std::map<std::string, Entry, std::less<>> entries_;
};

}  // namespace tessera::pt2
