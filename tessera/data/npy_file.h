// Writes NumPy arrays (format 1.0), row-major and little-endian. read_npy_header() of numbers.h
// reads such files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/base/result.h"

namespace tessera {

// Writes an array. The product of `shape` must be the number of elements. Errors: the file cannot
// be written.
Status write_npy(const std::string& path, const std::vector<float>& numbers,
                 const std::vector<int64_t>& shape);
Status write_npy(const std::string& path, const std::vector<double>& numbers,
                 const std::vector<int64_t>& shape);
Status write_npy(const std::string& path, const std::vector<int64_t>& numbers,
                 const std::vector<int64_t>& shape);

}  // namespace tessera
