// An array of numbers in a file, read by boxes, so that each rank reads only what it computes on: a
// NumPy file, "x.npy", a dataset of an HDF5 file, "x.h5:volumes" (also .hdf5), or an array that a
// generator makes, "universes(width=16):volumes" (generated_array.h).
//
//   TESSERA_TRY(const auto array, open_array_file("universes.h5:volumes"));
//   std::vector<std::byte> numbers(box.volume() * number_bytes(array->number()));
//   TESSERA_TRY_VOID(array->read(box, numbers.data()));
//
// HDF5 is an optional library: hdf5/ is the back end, no_hdf5/ replaces it where the library is
// absent.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tessera/base/box.h"
#include "tessera/base/result.h"
#include "tessera/data/numbers.h"

namespace tessera {

class ArrayFile {
 public:
  virtual ~ArrayFile() = default;
  const std::vector<int64_t>& shape() const { return shape_; }
  Number number() const { return number_; }
  int64_t elements() const;
  virtual int64_t file_bytes() const = 0;
  // Writes the elements of the box, which lies inside the shape: row-major, packed, in the file's
  // type of number but little-endian; floats of 16 bits become float32. Thread-safe. Errors are one
  // line.
  Status read(const Box& box, std::byte* to) const;
  // Returns the bytes that read() has taken from the file, or made, so far: elements times bytes of
  // each.
  int64_t bytes_read() const { return bytes_read_; }

 protected:
  virtual Status read_box(const Box& box, std::byte* to) const = 0;
  std::vector<int64_t> shape_;
  Number number_ = Number::kUint8;

 private:
  mutable std::atomic<int64_t> bytes_read_ = 0;
};

// A name in two parts. A NumPy file has an empty `dataset`; a generator's call stands in `path`.
struct ArrayName {
  std::string path, dataset;
};
ArrayName array_name(const std::string& name);

// Opens an array. Errors: the file cannot be read or is damaged; it has no such dataset; the
// dataset holds no numbers; this program was built without HDF5.
Result<std::unique_ptr<ArrayFile>> open_array_file(const ArrayName& name);
// Opens a dataset with the back end.
Result<std::unique_ptr<ArrayFile>> open_hdf5(const ArrayName& name);
bool have_hdf5();
// Makes an HDF5 file, replacing an existing one. Each array becomes a dataset of its name, in one
// piece of the file (contiguous), so that every hyperslab is read without the rest.
Status write_hdf5(const std::string& path,
                  const std::vector<std::pair<std::string, const ArrayFile*>>& arrays);

}  // namespace tessera
