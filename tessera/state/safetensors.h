// The safetensors file format: named arrays in one file, from which any byte range of any array can
// be read. A file is
//
//   8 bytes     length of the header, little endian
//   header      JSON: {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, ...,
//                "__metadata__": {"key": "text", ...}}; offsets count from the end of the header
//   data        the arrays, row-major, little endian, one after the other without gaps
//
// A file is not trusted. open() refuses a header that is larger than the file or than
// kMostHeaderBytes, names that occur twice, unknown dtypes, an array whose shape needs another
// number of bytes than its range has, ranges that overlap or leave gaps, and a file that is longer
// or shorter than its arrays. Before memory is allocated for a size that the file states, the size
// is compared with that of the file.
//
//   TESSERA_TRY(const SafetensorsFile file, SafetensorsFile::open("model.safetensors"));
//   const ArrayEntry* weight = file.find("lm_head.weight");
//   TESSERA_TRY_VOID(file.read(*weight, 0, weight->bytes, buffer));
//
// A file is written in two steps: layout_safetensors() computes the header and the position of each
// array; then the caller writes the bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/dtype.h"
#include "tessera/base/result.h"

namespace tessera {

inline constexpr int64_t kMostHeaderBytes = 100'000'000;  // the limit of the reference reader

struct ArrayEntry {
  std::string name;
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;
  int64_t begin = 0;  // counted from the beginning of the file
  int64_t bytes = 0;
};

class SafetensorsFile {
 public:
  // Opens a file. Errors: invalid input if the file cannot be read or is not a safetensors file;
  // the message names the file and what was expected. With `begin`, the safetensors file is what
  // follows that byte.
  static Result<SafetensorsFile> open(const std::string& path, int64_t begin = 0);

  const std::string& path() const { return path_; }
  const std::vector<ArrayEntry>& arrays() const { return arrays_; }  // in the order of their bytes
  const ArrayEntry* find(std::string_view name) const;               // null: there is none
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  uint64_t head_checksum() const { return head_checksum_; }  // of all bytes before the first array

  // Reads bytes [offset, offset + bytes) of an array. Thread-safe. Errors: a fault if the file has
  // become shorter or cannot be read.
  Status read(const ArrayEntry& array, int64_t offset, int64_t bytes, std::byte* out) const;
  // Announces that most of the file will be read, once and from front to back. After that, large
  // reads of bytes that are not in the page cache bypass the cache, if the file system can do so.
  // Call announce() before other threads read.
  void announce();

 private:
  struct Descriptor;  // the open file
  std::string path_;
  std::vector<ArrayEntry> arrays_;
  std::map<std::string, size_t, std::less<>> by_name_;
  std::map<std::string, std::string> metadata_;
  uint64_t head_checksum_ = 0;
  std::shared_ptr<Descriptor> descriptor_;
};

struct SafetensorsLayout {
  std::string head;  // the length and the header, which are the first bytes of the file
  std::vector<ArrayEntry> arrays;
  int64_t bytes = 0;  // of the whole file
};
// Lays out arrays of which name, dtype and shape are given, one after the other in the given order.
// The names must be distinct. The header is padded with spaces so that the data begins at a
// multiple of 8 bytes.
SafetensorsLayout layout_safetensors(std::vector<ArrayEntry> arrays,
                                     const std::map<std::string, std::string>& metadata = {});

// Returns the format's name of a dtype: "F64", "BF16", "I32", ...
std::string_view safetensors_dtype(DType dtype);

}  // namespace tessera
