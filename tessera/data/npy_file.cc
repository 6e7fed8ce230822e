#include "tessera/data/npy_file.h"

#include <fmt/format.h>

#include "tessera/base/text.h"

namespace tessera {
namespace {

// Writes an array. The head is padded so that the elements begin at a multiple of 64 bytes.
template <class T>
Status write_array(const std::string& path, std::string_view type, const std::vector<T>& numbers,
                   const std::vector<int64_t>& shape) {
  const std::string dims =
      shape.size() == 1 ? fmt::format("{},", shape[0]) : fmt::format("{}", fmt::join(shape, ", "));
  std::string head =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", type, dims);
  head.resize((head.size() + 10 + 64) / 64 * 64 - 10, ' ');
  head.back() = '\n';
  std::string bytes("\x93NUMPY\1\0", 8);
  bytes += static_cast<char>(head.size() % 256);
  bytes += static_cast<char>(head.size() / 256);
  bytes += head;
  bytes.append(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(T));
  return write_file(path, bytes);
}

}  // namespace

Status write_npy(const std::string& path, const std::vector<float>& numbers,
                 const std::vector<int64_t>& shape) {
  return write_array(path, "<f4", numbers, shape);
}

Status write_npy(const std::string& path, const std::vector<double>& numbers,
                 const std::vector<int64_t>& shape) {
  return write_array(path, "<f8", numbers, shape);
}

Status write_npy(const std::string& path, const std::vector<int64_t>& numbers,
                 const std::vector<int64_t>& shape) {
  return write_array(path, "<i8", numbers, shape);
}

}  // namespace tessera
