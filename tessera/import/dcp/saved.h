// Reads what torch.save has written into a range of a file: a tensor, or a number or a list of
// numbers. Nothing is executed (pickle.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/base/dtype.h"
#include "tessera/base/result.h"
#include "tessera/import/dcp/file.h"

namespace tessera::dcp {

// Where the elements of a saved tensor lie in its file.
struct SavedTensor {
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape, strides;  // strides in elements
  int64_t begin = 0;                    // the byte of the first element
  bool in_order() const;                // the elements are contiguous, row-major
};

// Reads where the elements of the tensor saved at bytes [offset, offset + length) of the file lie.
// All elements are inside that range. Errors (invalid input): it is no archive of torch.save, it is
// torn, it holds something else than one tensor.
Result<SavedTensor> find_saved(const File& file, int64_t offset, int64_t length);

// Returns the numbers saved there: one, or those of a list or a tuple; texts and None become
// nothing, and so does whatever else is saved there.
std::vector<double> saved_numbers(const File& file, int64_t offset, int64_t length);

// Returns the number that a saved dict of dicts has under these keys, as a number or as a tensor of
// one element; nothing if it has none, or if what is saved has a class that is not known.
std::optional<double> saved_number(const File& file, const std::vector<std::string>& keys);

}  // namespace tessera::dcp
