// Sources of named arrays: one interface for weight files and checkpoints. A caller asks for a
// region of a tensor in some dtype; the source reads only the byte ranges of this region.
//
//   TESSERA_TRY(const auto source, open_source("folder_or_file"));
//   const SourceArray* found = source->find("blocks.0.attn.q.weight");
//   TESSERA_TRY_VOID(source->read(*found, region, DType::kFloat32, buffer));
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/box.h"
#include "tessera/base/dtype.h"
#include "tessera/base/result.h"

namespace tessera {

struct SourceArray {
  std::string name;
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;
};

class TensorSource {
 public:
  virtual ~TensorSource() = default;
  virtual std::string where() const = 0;  // the file or folder, for messages
  virtual const std::vector<SourceArray>& arrays() const = 0;
  virtual const SourceArray* find(std::string_view name) const = 0;  // null: there is none
  // Writes the region of the array to `out`, row-major, converted to `dtype` (base/convert.h). The
  // region must lie inside the array's shape. Errors: a fault if the file has changed since it was
  // opened.
  virtual Status read(const SourceArray& array, const Box& region, DType dtype,
                      std::byte* out) const = 0;
  // Returns the bytes read from files so far.
  virtual int64_t bytes_read() const = 0;
};

// Opens one safetensors file, or a folder of several whose arrays have distinct names. In a folder,
// opens the files that its index file (*.safetensors.index.json) names, or all of them if it has no
// index.
Result<std::unique_ptr<TensorSource>> open_safetensors(const std::string& path);

// Opens whatever is at a path: a safetensors file, a folder of such files, the folder of a
// checkpoint, or a folder of checkpoints, of which it takes the newest. Checkpoints are compared
// with their checksums as they are read. Errors: the path is none of these; the errors of opening
// it.
Result<std::unique_ptr<TensorSource>> open_source(const std::string& path);

// A contiguous range of bytes. byte_ranges() returns the ranges of a row-major array that together
// are a region, in order; adjacent ranges are merged.
struct ByteRange {
  int64_t begin = 0, bytes = 0;
  friend bool operator==(const ByteRange&, const ByteRange&) = default;
};
std::vector<ByteRange> byte_ranges(const std::vector<int64_t>& shape, int64_t bytes_per_element,
                                   const Box& region);

}  // namespace tessera
