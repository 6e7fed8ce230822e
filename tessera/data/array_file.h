// An array of numbers in a file, read by boxes, so that each rank reads only what it computes on: a
// NumPy file, "x.npy", a dataset of an HDF5 file, "x.h5:volumes" (also .hdf5), or one that a
// generator makes, "universes(width=16):volumes" (generated_array.h).
//
//   TESSERA_TRY(const auto array, open_array_file("universes.h5:volumes"));
//   std::vector<std::byte> numbers(box.volume() * number_bytes(array->number()));
//   TESSERA_TRY_VOID(array->read(box, numbers.data()));
//
// HDF5 is an optional library: hdf5/ is the back end, no_hdf5/ says that it is not there.
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
  // The elements of the box, which lies inside the shape: row-major, packed, in the file's type of
  // number but little-endian, floats of 16 bits as float32. Thread-safe. Error: one line.
  Status read(const Box& box, std::byte* to) const;
  // Bytes that read() has taken from the file, or made, so far: elements times the bytes of one.
  int64_t bytes_read() const { return bytes_read_; }

 protected:
  virtual Status read_box(const Box& box, std::byte* to) const = 0;
  std::vector<int64_t> shape_;
  Number number_ = Number::kUint8;

 private:
  mutable std::atomic<int64_t> bytes_read_ = 0;
};

// A name in two parts; `dataset` is empty of a NumPy file. `path` is the call of a generator, too.
struct ArrayName {
  std::string path, dataset;
};
ArrayName array_name(const std::string& name);

// Errors: the file cannot be read or is damaged; it has no such dataset; a dataset of something else
// than numbers; HDF5 was not there when this program was built.
Result<std::unique_ptr<ArrayFile>> open_array_file(const ArrayName& name);
// The back end.
Result<std::unique_ptr<ArrayFile>> open_hdf5(const ArrayName& name);
bool have_hdf5();
// Makes an HDF5 file, in place of one that is there: a dataset of each array, by name, in one piece
// of the file (contiguous), so that every hyperslab is read without the rest.
Status write_hdf5(const std::string& path,
                  const std::vector<std::pair<std::string, const ArrayFile*>>& arrays);

}  // namespace tessera
