#include "tessera/runtime/data/clicks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "tessera/base/one_line.h"
#include "tessera/base/permutation.h"
#include "tessera/data/click_arrays.h"
#include "tessera/data/click_file.h"
#include "tessera/data/match_files.h"
#include "tessera/runtime/data/inputs.h"
#include "tessera/runtime/data/sample_passes.h"
#include "tessera/runtime/kernels/nest.h"

namespace tessera {
namespace {

// An input of the model, and the part of the file from which it is made.
struct FedInput {
  ClickInput part;
  int64_t samples_of_batch = 1;
  int64_t sample_elements = 1;
};

class ClickSource : public DataSource {
 public:
  ClickSource(ClickFile file, std::string path, const DataWants& wants)
      : file_(std::move(file)), path_(std::move(path)), wants_(wants) {}

  // Finds, for each part of the file, the model's input that gets it, and checks that both fit.
  Status feed() {
    if (file_.samples() == 0) return error("expected samples, found none");
    const Graph& graph = wants_.model->graph;
    for (const ClickInput& part : click_inputs(file_.schema())) {
      const TensorId input = graph.find_tensor(part.name);
      if (!input.valid() || graph.tensor(input).role != Role::kInput) {
        return error(fmt::format("expected a model with an input '{}'{}, found none", part.name,
                                 part.part == ClickInput::Part::kIds
                                     ? fmt::format(" for feature '{}'", name_of(part.feature))
                                     : std::string()));
      }
      TESSERA_TRY_VOID(add(graph.tensor(input), part));
    }
    for (const Tensor& tensor : graph.tensors()) {
      if (tensor.role != Role::kInput || fed_.contains(tensor.name)) continue;
      return error(
          fmt::format("expected data for each input of the model, found none for '{}' (features: "
                      "{}, dense numbers: {})",
                      tensor.name, file_.schema().features.size(), file_.schema().dense));
    }
    return {};
  }

  Status load(int64_t step, const Tensor& tensor, const Box& region,
              const kernels::Array& to) const override {
    const FedInput& fed = fed_.at(tensor.name);
    const bool dense = fed.part.part == ClickInput::Part::kDense;
    // The elements of one sample: each element's number, and its offset in bytes from the sample's
    // first destination.
    std::vector<std::pair<size_t, int64_t>> elements;
    Box one = region;
    one.dims[0] = {0, 1};
    const int64_t bytes = dtype_bytes(to.dtype);
    each_element(tensor, one, to, [&](int64_t offset, int64_t index) {
      elements.emplace_back(static_cast<size_t>(index), offset * bytes);
    });
    std::byte* begin = to.data;
    for (int64_t i = 0; i < region.dims[0].size; ++i, begin += to.strides[0] * bytes) {
      const int64_t place = (step - 1) * fed.samples_of_batch + region.dims[0].begin + i;
      const Sample sample = read(fed, place);
      for (const auto& [element, offset] : elements) {
        if (dense) {
          kernels::store_element(begin + offset, to.dtype,
                                 static_cast<double>(sample.dense[element]));
          continue;
        }
        const int64_t value = element < sample.ids.size() ? int64_t{sample.ids[element]} : -1;
        std::memcpy(begin + offset, &value, sizeof value);
      }
    }
    return {};
  }

  int64_t files() const override { return 1; }
  int64_t bytes() const override { return file_.bytes(); }
  const SamplePasses* passes() const override { return passes_ ? &*passes_ : nullptr; }

 private:
  tl::unexpected<Error> error(const std::string& message) const {
    return invalid_input(fmt::format("data: '{}': {}", path_, message));
  }

  std::string name_of(size_t feature) const {
    return one_line(file_.schema().features[feature].name);
  }

  Status add(const Tensor& tensor, const ClickInput& part) {
    const bool dense = part.part == ClickInput::Part::kDense;
    if (dense != is_floating(tensor.dtype) || tensor.dims.empty()) {
      return error(fmt::format("expected the model's input '{}' to be {} by sample, found {} [{}]",
                               tensor.name, dense ? "numbers" : "integers",
                               dtype_name(tensor.dtype), fmt::join(tensor.shape(), ", ")));
    }
    FedInput fed{part, tensor.dims.front().size, 1};
    if (wants_.once) passes_.emplace(fed.samples_of_batch, file_.samples());
    for (size_t d = 1; d < tensor.dims.size(); ++d) fed.sample_elements *= tensor.dims[d].size;
    if (!fed_.empty() && fed.samples_of_batch != fed_.begin()->second.samples_of_batch) {
      return error(fmt::format(
          "expected inputs of the model with as many samples a batch as '{}', {}, found {} in '{}'",
          fed_.begin()->first, fed_.begin()->second.samples_of_batch, fed.samples_of_batch,
          tensor.name));
    }
    if (part.part == ClickInput::Part::kIds) {
      TESSERA_TRY_VOID(check_ids(tensor, fed));
    } else if (fed.sample_elements != part.sample_elements) {
      return error(
          fmt::format("expected samples of {} numbers for the model's input '{}', found {}",
                      fed.sample_elements, tensor.name, part.sample_elements));
    }
    fed_.emplace(tensor.name, fed);
    return {};
  }

  // Checks that every bag fits in the input, that every bag is full if the input takes no shorter
  // bags, and that every id is a row of the model's table.
  Status check_ids(const Tensor& tensor, const FedInput& fed) const {
    const size_t feature = fed.part.feature;
    if (fed.part.sample_elements > fed.sample_elements) {
      return error(fmt::format(
          "feature '{}': expected bags of at most {} (the model's input '{}'), found up to {}",
          name_of(feature), fed.sample_elements, tensor.name, fed.part.sample_elements));
    }
    if (!holds_bags(wants_.model->graph, tensor) &&
        file_.ids(feature) != fed.sample_elements * file_.samples()) {
      return error(fmt::format(
          "feature '{}': expected bags of {} (the model's input '{}'), found shorter ones",
          name_of(feature), fed.sample_elements, tensor.name));
    }
    const int64_t rows = values_of_input(*wants_.model, tensor);
    if (file_.schema().features[feature].rows <= rows) return {};
    for (int64_t sample = 0; sample < file_.samples(); ++sample) {
      for (const int64_t id : file_.bag(feature, sample)) {
        if (id < rows) continue;
        return error(
            fmt::format("feature '{}', sample {}: expected ids below {} (rows of the model's table "
                        "for '{}'), found row {}",
                        name_of(feature), sample, rows, tensor.name, id));
      }
    }
    return {};
  }

  // The values of a sample for one input: dense numbers or ids. For targets, `ids` has one element,
  // the target.
  struct Sample {
    std::span<const float> dense;
    std::span<const uint32_t> ids;
  };
  Sample read(const FedInput& fed, int64_t place) const {
    static constexpr std::array<uint32_t, 2> kTargets = {0, 1};
    const int64_t count = file_.samples();
    if (passes_) place = passes_->sample(place);
    const int64_t sample =
        permuted(place % count, count, wants_.seed, wants_.stream, place / count);
    switch (fed.part.part) {
      case ClickInput::Part::kDense: return {file_.dense(sample), {}};
      case ClickInput::Part::kIds: return {{}, file_.bag(fed.part.feature, sample)};
      case ClickInput::Part::kTargets: break;
    }
    return {{}, std::span(kTargets).subspan(file_.label(sample) > 0 ? 1 : 0, 1)};
  }

  ClickFile file_;
  std::string path_;
  DataWants wants_;
  std::map<std::string, FedInput> fed_;
  std::optional<SamplePasses> passes_;
};

}  // namespace

Result<std::unique_ptr<DataSource>> open_clicks(const std::string& path, const DataWants& wants) {
  const std::string found = found_file(path, wants.beside);
  auto file = ClickFile::open(found);
  if (!file) return invalid_input(fmt::format("data: {}", file.error().message));
  auto source = std::make_unique<ClickSource>(std::move(*file), found, wants);
  TESSERA_TRY_VOID(source->feed());
  return std::unique_ptr<DataSource>(std::move(source));
}

}  // namespace tessera
