// Writes NumPy arrays (format 1.0), row-major and little-endian. numbers.h reads them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/base/result.h"

namespace tessera {

// Writes an array. The shape's product is the number of elements. Errors: the file cannot be
// written.
Status write_npy(const std::string& path, const std::vector<float>& numbers,
                 const std::vector<int64_t>& shape);
Status write_npy(const std::string& path, const std::vector<double>& numbers,
                 const std::vector<int64_t>& shape);
Status write_npy(const std::string& path, const std::vector<int64_t>& numbers,
                 const std::vector<int64_t>& shape);

}  // namespace tessera
