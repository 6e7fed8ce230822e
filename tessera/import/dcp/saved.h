// Reads what torch.save has written into a range of a file: a tensor, or a value made of numbers,
// texts, lists and dicts. Nothing is executed (pickle.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
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

// A saved value that is no tensor, such as the settings of an optimizer.
//
//   TESSERA_TRY(const SavedValue common, SavedValue::open(file, 0, file.bytes()));
//   const std::vector<double> lr = common.numbers({"optimizer", "param_groups", "0", "lr"});
class SavedValue {
 public:
  // Opens the value saved at bytes [offset, offset + length) of the file. Errors (invalid input): it
  // is no archive of torch.save, it is torn, or it has a class that neither PyTorch nor Megatron
  // Core has in settings.
  static Result<SavedValue> open(const File& file, int64_t offset, int64_t length);
  // Returns the numbers under these keys of dicts, or indices of lists: one, or those of a list, a
  // tuple or a tensor of one element. Empty: there are none.
  std::vector<double> numbers(const std::vector<std::string>& keys) const;
  // Returns the text under these keys. Empty: there is none.
  std::string text(const std::vector<std::string>& keys) const;

 private:
  struct Archive;
  explicit SavedValue(std::shared_ptr<const Archive> archive) : archive_(std::move(archive)) {}
  std::shared_ptr<const Archive> archive_;
};

}  // namespace tessera::dcp
