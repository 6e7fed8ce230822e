// A file of clicks as the inputs of a recommender: one array for each input, whose element n
// belongs to sample n:
//
//   dense      float32 [samples, dense numbers], if there are any
//   ids.<f>    int64 [samples, bag], padded with -1; f from 0, in the order of the features
//   targets    int64 [samples], 0 or 1
//
// A run reads a file of clicks by these names (runtime/clicks.h); other programs can read the NumPy
// arrays (docs/guides/data.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/data/click_file.h"

namespace tessera {

struct ClickInput {
  enum class Part : uint8_t { kDense, kIds, kTargets };
  std::string name;
  Part part = Part::kDense;
  size_t feature = 0;           // the feature's number, for ids
  int64_t sample_elements = 1;  // dense numbers, or the feature's longest bag
};
std::vector<ClickInput> click_inputs(const ClickSchema& schema);

// Writes each array as <name>.npy to the folder, which is made if it does not exist. An array is
// written completely or not at all, and is in memory while it is written.
Status write_click_arrays(const ClickFile& file, const std::string& folder);

}  // namespace tessera
