// A file of which ranges of bytes are read, and the zip archives that lie in it.
//
// torch.save writes a zip archive whose entries are not compressed, so that an entry is a range of
// bytes of the file. A .distcp file has one such archive for each tensor, one after the other.
// Nothing that an archive states is trusted: every range is compared with the archive's length.
//
//   TESSERA_TRY(const File file, File::open("run/__0_0.distcp"));
//   TESSERA_TRY(const auto entries, entries_of(file, offset, length));
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "tessera/base/result.h"

namespace tessera::dcp {

class File {
 public:
  // Opens a file. Errors (invalid input): there is no regular file that can be read.
  static Result<File> open(const std::string& path);
  const std::string& path() const { return path_; }
  int64_t bytes() const { return bytes_; }
  // Reads bytes [offset, offset + bytes). Thread-safe. Errors (invalid input): the file has fewer.
  Status read(int64_t offset, int64_t bytes, std::byte* out) const;
  Result<std::string> text(int64_t offset, int64_t bytes) const;

 private:
  struct Descriptor;
  std::string path_;
  int64_t bytes_ = 0;
  std::shared_ptr<Descriptor> descriptor_;
};

struct Range {
  int64_t begin = 0, bytes = 0;
};

// Returns the entries of the archive that is bytes [offset, offset + length) of the file, by name
// without the archive's root folder. Errors (invalid input) name the file and the archive's place.
Result<std::map<std::string, Range>> entries_of(const File& file, int64_t offset, int64_t length);

}  // namespace tessera::dcp
