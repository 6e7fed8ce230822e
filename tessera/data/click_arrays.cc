#include "tessera/data/click_arrays.h"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>
#include <vector>

#include "tessera/base/text.h"

namespace tessera {
namespace {

// NumPy's format 1: the head is padded so that the elements begin at a multiple of 64 bytes.
template <class T>
Status write_array(const std::string& path, const char* type, const std::string& shape,
                   const std::vector<T>& numbers) {
  std::string head =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", type, shape);
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

Status write_click_arrays(const ClickFile& file, const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    return invalid_input(fmt::format("cannot make the folder '{}': {}", folder, error.message()));
  }
  const ClickSchema& schema = file.schema();
  const int64_t samples = file.samples();
  std::vector<int64_t> targets;
  std::vector<float> dense;
  for (int64_t i = 0; i < samples; ++i) {
    targets.push_back(file.label(i) > 0 ? 1 : 0);
    const auto numbers = file.dense(i);
    dense.insert(dense.end(), numbers.begin(), numbers.end());
  }
  if (schema.dense > 0) {
    TESSERA_TRY_VOID(write_array(folder + "/dense.npy", "<f4",
                                 fmt::format("{}, {}", samples, schema.dense), dense));
  }
  for (size_t f = 0; f < schema.features.size(); ++f) {
    Bags bags;
    for (int64_t i = 0; i < samples; ++i) {
      const auto ids = file.bag(f, i);
      bags.lengths.push_back(static_cast<int32_t>(ids.size()));
      bags.ids.insert(bags.ids.end(), ids.begin(), ids.end());
    }
    const int64_t capacity = schema.features[f].bag;
    TESSERA_TRY_VOID(write_array(fmt::format("{}/ids.{}.npy", folder, f), "<i8",
                                 fmt::format("{}, {}", samples, capacity), padded(bags, capacity)));
  }
  return write_array(folder + "/targets.npy", "<i8", fmt::format("{},", samples), targets);
}

}  // namespace tessera
