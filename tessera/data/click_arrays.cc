#include "tessera/data/click_arrays.h"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>
#include <vector>

#include "tessera/base/text.h"
#include "tessera/data/npy_file.h"

namespace tessera {
namespace {

Status write_dense(const ClickFile& file, const std::string& path, int64_t width) {
  std::vector<float> dense;
  for (int64_t i = 0; i < file.samples(); ++i) {
    const auto numbers = file.dense(i);
    dense.insert(dense.end(), numbers.begin(), numbers.end());
  }
  return write_npy(path, dense, {file.samples(), width});
}

Status write_ids(const ClickFile& file, const std::string& path, const ClickInput& input) {
  Bags bags;
  for (int64_t i = 0; i < file.samples(); ++i) {
    const auto ids = file.bag(input.feature, i);
    bags.lengths.push_back(static_cast<int32_t>(ids.size()));
    bags.ids.insert(bags.ids.end(), ids.begin(), ids.end());
  }
  return write_npy(path, padded(bags, input.sample_elements),
                   {file.samples(), input.sample_elements});
}

Status write_targets(const ClickFile& file, const std::string& path) {
  std::vector<int64_t> targets;
  for (int64_t i = 0; i < file.samples(); ++i) targets.push_back(file.label(i) > 0 ? 1 : 0);
  return write_npy(path, targets, {file.samples()});
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
