// An array of numbers that is read by boxes, so that each rank reads only the elements that it
// computes on. Its name says what it is: a NumPy file, "x.npy"; a dataset of an HDF5 file,
// "x.h5:volumes" (also .hdf5); or an array that a generator makes, "universes(width=16):volumes"
// (generated_array.h).
//
//   TESSERA_TRY(const auto array, open_array_file("universes.h5:volumes"));
//   std::vector<std::byte> numbers(box.volume() * number_bytes(array->number()));
//   TESSERA_TRY_VOID(array->read(box, numbers.data()));
//
// HDF5 is an optional library. The folder hdf5/ has the code that uses it; no_hdf5/ replaces that
// code in builds without the library.
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
  // Writes the elements of the box, which lies inside the shape, to `to`: row-major, without gaps,
  // in the array's type of number and little-endian. Floats of 16 bits are converted to float32.
  // Thread-safe. Errors are one line.
  Status read(const Box& box, std::byte* to) const;
  // Returns the bytes that all calls of read() have read or generated so far. Each element counts
  // with the bytes that it has in `to`.
  int64_t bytes_read() const { return bytes_read_; }

 protected:
  virtual Status read_box(const Box& box, std::byte* to) const = 0;
  std::vector<int64_t> shape_;
  Number number_ = Number::kUint8;

 private:
  mutable std::atomic<int64_t> bytes_read_ = 0;
};

// The two parts of an array's name. For a NumPy file `dataset` is empty; for a generator `path` is
// its call, "universes(width=16)".
struct ArrayName {
  std::string path, dataset;
};
ArrayName array_name(const std::string& name);

// Opens an array. Errors: the file cannot be read or is damaged; it has no such dataset; the
// dataset does not hold numbers; this program was built without HDF5.
Result<std::unique_ptr<ArrayFile>> open_array_file(const ArrayName& name);
// Opens a dataset of an HDF5 file, or returns an error if the program was built without HDF5.
Result<std::unique_ptr<ArrayFile>> open_hdf5(const ArrayName& name);
bool have_hdf5();
// Makes an HDF5 file; an existing one is replaced. Each array becomes a dataset with the given
// name. The dataset is stored in one piece (contiguous layout), so that any box of it can be read
// without reading the rest.
Status write_hdf5(const std::string& path,
                  const std::vector<std::pair<std::string, const ArrayFile*>>& arrays);

}  // namespace tessera
