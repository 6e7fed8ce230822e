// The inputs of a recommender, made from a file of clicks. Each input is one array; its element n
// along the first dim belongs to sample n:
//
//   dense      float32 [samples, dense numbers], if there are any
//   ids.<f>    int64 [samples, bag], padded with -1; f from 0, in the order of the features
//   targets    int64 [samples], 0 or 1
//
// A run reads a file of clicks by these names of inputs (runtime/data/clicks.h). Other programs can read
// the arrays as NumPy files (docs/guides/data.md).
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
  size_t feature = 0;  // for ids: the number of the feature
  // Elements of a sample: the dense numbers, or the most ids in a bag of the feature; 1 for
  // targets.
  int64_t sample_elements = 1;
};
std::vector<ClickInput> click_inputs(const ClickSchema& schema);

// Writes each array to the file <name>.npy of the folder, and makes the folder if it does not
// exist. An array's file appears only when it is complete. The whole array is in memory while it is
// written.
Status write_click_arrays(const ClickFile& file, const std::string& folder);

}  // namespace tessera
