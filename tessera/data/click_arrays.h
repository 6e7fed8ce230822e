// A file of clicks as NumPy arrays, one for each input of a recommender, for what reads arrays
// (docs/guides/data.md):
//
//   dense.npy      float32 [samples, dense numbers], if there are any
//   ids.<f>.npy    int64 [samples, bag], padded with -1; f from 0, in the order of the features
//   targets.npy    int64 [samples], 0 or 1
#pragma once

#include <string>

#include "tessera/base/result.h"
#include "tessera/data/click_file.h"

namespace tessera {

// The folder is made if it is not there. Each array is written completely or not at all, and is in
// memory while it is written.
Status write_click_arrays(const ClickFile& file, const std::string& folder);

}  // namespace tessera
