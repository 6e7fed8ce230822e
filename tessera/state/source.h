// Sources of named arrays: files of weights and checkpoints, seen alike. Whoever fills a tensor asks
// for the region and the dtype that it needs; a source reads only the byte ranges of that region.
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
  // Writes the region, row-major, converted to `dtype` (base/convert.h). The region lies inside the
  // array's shape. Error (fault): what is read is not what was opened.
  virtual Status read(const SourceArray& array, const Box& region, DType dtype,
                      std::byte* out) const = 0;
  // Read from files so far.
  virtual int64_t bytes_read() const = 0;
};

// One safetensors file, or several whose names are distinct: those that the index file
// (*.safetensors.index.json) of a folder names, or all of a folder without an index.
Result<std::unique_ptr<TensorSource>> open_safetensors(const std::string& path);

// What a path holds: a safetensors file, a folder of them, a checkpoint's folder, or a folder of
// checkpoints (the newest), which is compared with its checksums as it is read. Error: nothing of
// these, or what opening it says.
Result<std::unique_ptr<TensorSource>> open_source(const std::string& path);

// The runs of bytes that hold a region of a row-major array, in order; runs that touch are one.
struct ByteRange {
  int64_t begin = 0, bytes = 0;
  friend bool operator==(const ByteRange&, const ByteRange&) = default;
};
std::vector<ByteRange> byte_ranges(const std::vector<int64_t>& shape, int64_t bytes_per_element,
                                   const Box& region);

}  // namespace tessera
