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

Status write_dense(const ClickFile& file, const std::string& path, int64_t width) {
  std::vector<float> dense;
  for (int64_t i = 0; i < file.samples(); ++i) {
    const auto numbers = file.dense(i);
    dense.insert(dense.end(), numbers.begin(), numbers.end());
  }
  return write_array(path, "<f4", fmt::format("{}, {}", file.samples(), width), dense);
}

Status write_ids(const ClickFile& file, const std::string& path, const ClickInput& input) {
  Bags bags;
  for (int64_t i = 0; i < file.samples(); ++i) {
    const auto ids = file.bag(input.feature, i);
    bags.lengths.push_back(static_cast<int32_t>(ids.size()));
    bags.ids.insert(bags.ids.end(), ids.begin(), ids.end());
  }
  return write_array(path, "<i8", fmt::format("{}, {}", file.samples(), input.sample_elements),
                     padded(bags, input.sample_elements));
}

Status write_targets(const ClickFile& file, const std::string& path) {
  std::vector<int64_t> targets;
  for (int64_t i = 0; i < file.samples(); ++i) targets.push_back(file.label(i) > 0 ? 1 : 0);
  return write_array(path, "<i8", fmt::format("{},", file.samples()), targets);
}

}  // namespace

std::vector<ClickInput> click_inputs(const ClickSchema& schema) {
  using Part = ClickInput::Part;
  std::vector<ClickInput> inputs;
  if (schema.dense > 0) inputs.push_back({"dense", Part::kDense, 0, schema.dense});
  for (size_t f = 0; f < schema.features.size(); ++f) {
    inputs.push_back({fmt::format("ids.{}", f), Part::kIds, f, schema.features[f].bag});
  }
  inputs.push_back({"targets", Part::kTargets, 0, 1});
  return inputs;
}

Status write_click_arrays(const ClickFile& file, const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    return invalid_input(fmt::format("cannot make the folder '{}': {}", folder, error.message()));
  }
  for (const ClickInput& input : click_inputs(file.schema())) {
    const std::string path = fmt::format("{}/{}.npy", folder, input.name);
    switch (input.part) {
      case ClickInput::Part::kDense:
        TESSERA_TRY_VOID(write_dense(file, path, input.sample_elements));
        break;
      case ClickInput::Part::kIds: TESSERA_TRY_VOID(write_ids(file, path, input)); break;
      case ClickInput::Part::kTargets: TESSERA_TRY_VOID(write_targets(file, path)); break;
    }
  }
  return {};
}

}  // namespace tessera
