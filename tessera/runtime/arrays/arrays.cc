#include "tessera/runtime/arrays/arrays.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "tessera/base/permutation.h"
#include "tessera/base/philox.h"
#include "tessera/base/text.h"
#include "tessera/data/match_files.h"
#include "tessera/data/numbers.h"
#include "tessera/runtime/arrays/opened_array.h"
#include "tessera/runtime/data/data_store.h"
#include "tessera/runtime/data/inputs.h"
#include "tessera/runtime/data/sample_passes.h"

namespace tessera {
namespace {

class ArraySource : public DataSource, public SampleAccess {
 public:
  ArraySource(const DataWants& wants, const DataConfig& config) : wants_(wants), config_(config) {}

  Status add(const Tensor& tensor, const ArrayName& name) {
    OpenedArray array;
    array.name = name.dataset.empty() ? name.path : name.path + ":" + name.dataset;
    auto file = open_array_file(name);
    if (!file) return data_error(file.error().message);
    array.file = std::move(*file);
    const std::vector<int64_t> shape = tensor.shape();
    if (!match_dims(shape, array)) {
      return data_error(fmt::format(
          "'{}': expected the shape [samples, {}] for the input '{}', found [{}]", array.name,
          fmt::join(shape.begin() + std::min<int64_t>(1, static_cast<int64_t>(shape.size())),
                    shape.end(), ", "),
          tensor.name, fmt::join(array.file->shape(), ", ")));
    }
    if (!is_target(tensor.name)) array.scale = config_.scale;
    const bool integers = !is_floating(tensor.dtype);
    if (integers && !is_integer(array.file->number())) {
      return data_error(fmt::format("'{}': expected integers for the input '{}', found {}",
                                    array.name, tensor.name, number_name(array.file->number())));
    }
    array.samples_of_batch = 1;
    for (size_t d = 0; d < array.leading; ++d) array.samples_of_batch *= shape[d];
    array.sample_elements = array.file->elements() / array.samples();
    if (integers) {
      array.values = values_of_input(*wants_.model, tensor);
      array.ignores = is_target(tensor.name) || holds_bags(wants_.model->graph, tensor);
    }
    if (const auto ahead = config_.ahead.find(tensor.name); ahead != config_.ahead.end()) {
      array.ahead = ahead->second;
    }
    array.moved = !integers && !is_target(tensor.name) && (config_.shift > 0 || config_.flip);
    if (array.moved) TESSERA_TRY_VOID(check_map(tensor, array));
    if (!arrays_.empty()) TESSERA_TRY_VOID(check_alike(arrays_.begin()->second, array));
    if (wants_.once) {
      const int64_t most = array.samples();
      passes_.emplace(array.samples_of_batch,
                      *wants_.once == 0 ? most : std::min(most, *wants_.once));
    }
    arrays_.emplace(tensor.name, std::move(array));
    return {};
  }

  Status load(int64_t step, const Tensor& tensor, const Box& region,
              const kernels::Array& to) const override {
    const OpenedArray& array = arrays_.at(tensor.name);
    std::vector<std::byte> numbers(
        static_cast<size_t>(rest_of(array, region).volume() * number_bytes(array.file->number())));
    return load_parts(step, tensor, region, to, [&](SamplePart& part) {
      part.numbers = numbers.data();
      return read_sample(array, part.sample, part.box, numbers.data());
    });
  }

  int64_t files() const override { return static_cast<int64_t>(paths().size()); }
  int64_t bytes() const override {
    int64_t bytes = 0;
    for (const auto& [path, size] : paths()) bytes += size;
    return bytes;
  }
  int64_t samples() const override {
    return arrays_.empty() ? 0 : arrays_.begin()->second.samples();
  }
  int64_t bytes_of(int64_t step, const Tensor& tensor, const Box& region) const override {
    const auto found = arrays_.find(tensor.name);
    if (found == arrays_.end()) return 0;
    const OpenedArray& array = found->second;
    const Box rest = rest_of(array, region);
    int64_t elements = 0;
    each_sample(array, step, tensor, region, [&](const std::vector<int64_t>&, int64_t place) {
      elements += sources(array, rest, moves_of(array, tensor.name, place)).volume();
    });
    return elements * number_bytes(array.file->number());
  }
  int64_t bytes_read() const override {
    int64_t bytes = 0;
    for (const auto& [name, array] : arrays_) bytes += array.file->bytes_read();
    return bytes;
  }
  const SampleAccess* samples_one_by_one() const override { return this; }
  const SamplePasses* passes() const override { return passes_ ? &*passes_ : nullptr; }

  // ---- samples one by one
  std::vector<std::string> inputs() const override {
    std::vector<std::string> names;
    for (const auto& [name, array] : arrays_) names.push_back(name);
    return names;
  }
  Box sample_box(const std::string& input) const override {
    return Box::whole(arrays_.at(input).sizes);
  }
  int64_t samples_of(const std::string& input) const override {
    return arrays_.at(input).samples();
  }
  int64_t bytes_of_number(const std::string& input) const override {
    return number_bytes(arrays_.at(input).file->number());
  }
  size_t leading_dims(const std::string& input) const override { return arrays_.at(input).leading; }
  std::vector<SamplePiece> pieces(int64_t step, const Tensor& tensor,
                                  const Box& region) const override {
    const OpenedArray& array = arrays_.at(tensor.name);
    const Box rest = rest_of(array, region);
    std::vector<SamplePiece> out;
    each_sample(array, step, tensor, region, [&](const std::vector<int64_t>&, int64_t place) {
      Box from = sources(array, rest, moves_of(array, tensor.name, place));
      if (!from.empty()) out.push_back({sample_at(array, place), std::move(from)});
    });
    return out;
  }
  Status read_piece(const std::string& input, const SamplePiece& piece,
                    std::byte* to) const override {
    return read_sample(arrays_.at(input), piece.sample, piece.box, to);
  }
  Status load_pieces(int64_t step, const Tensor& tensor, const Box& region,
                     const kernels::Array& to,
                     const std::function<const std::byte*(size_t)>& numbers) const override {
    size_t next = 0;
    return load_parts(step, tensor, region, to, [&](SamplePart& part) -> Status {
      part.numbers = numbers(next++);
      return {};
    });
  }

 private:
  // Returns the sizes of the files by path. A file with several datasets occurs once.
  std::map<std::string, int64_t> paths() const {
    std::map<std::string, int64_t> paths;
    for (const auto& [name, array] : arrays_)
      paths[array_name(array.name).path] = array.file->file_bytes();
    return paths;
  }

  // Carries out load(). Calls `read` for each part that is not empty, in order, to get the numbers
  // of the part.
  template <class Read>
  Status load_parts(int64_t step, const Tensor& tensor, const Box& region, const kernels::Array& to,
                    Read&& read) const {
    const OpenedArray& array = arrays_.at(tensor.name);
    const Box rest = rest_of(array, region);
    const int64_t bytes = dtype_bytes(to.dtype);
    Status status;
    each_sample(array, step, tensor, region, [&](const std::vector<int64_t>& at, int64_t place) {
      int64_t begin = 0;
      for (size_t d = 0; d < at.size(); ++d) begin += at[d] * to.strides[d];
      const SampleMoves moves = moves_of(array, tensor.name, place);
      SamplePart part{sample_at(array, place), sources(array, rest, moves), nullptr};
      if (status && !part.box.empty()) status = read(part);
      if (!status) return;
      status = store_part(array, part, rest, moves, to.data + begin * bytes, to);
      if (!status) status = data_error(status.error().message);
    });
    return status;
  }

  static Box rest_of(const OpenedArray& array, const Box& region) {
    const auto leading = static_cast<std::ptrdiff_t>(array.leading);
    return Box(Box::Dims(region.dims.begin() + leading, region.dims.end()));
  }

  // Calls f for each sample of the region with the sample's coordinates, counted from the region's
  // first sample, and the sample's place over all steps of the run (arrays.h).
  template <class F>
  static void each_sample(const OpenedArray& array, int64_t step, const Tensor& tensor,
                          const Box& region, F&& f) {
    const auto leading = static_cast<std::ptrdiff_t>(array.leading);
    const Box samples(Box::Dims(region.dims.begin(), region.dims.begin() + leading));
    const int64_t first = (step - 1 + array.ahead) * array.samples_of_batch;
    each_place(samples, [&](const std::vector<int64_t>& at, int64_t) {
      int64_t place = 0;
      for (size_t d = 0; d < at.size(); ++d)
        place = place * tensor.dims[d].size + region.dims[d].begin + at[d];
      f(at, first + place);
    });
  }

  int64_t sample_at(const OpenedArray& array, int64_t place) const {
    if (passes_) place = passes_->sample(place);
    const int64_t sample = place % array.samples();
    if (wants_.in_order) return sample;
    return permuted(sample, array.samples(), wants_.seed, wants_.stream, place / array.samples());
  }

  // Draws the moves of a sample. Each input and each place of the run uses other random numbers.
  SampleMoves moves_of(const OpenedArray& array, const std::string& input, int64_t place) const {
    SampleMoves moves;
    for (size_t d = 0; d < array.sizes.size(); ++d) moves.push_back({});
    if (!array.moved) return moves;
    const std::string stream = wants_.stream + ".moves." + input;
    const Philox philox{static_cast<uint64_t>(wants_.seed),
                        stable_hash(stream.data(), stream.size())};
    const std::array<uint32_t, 4> words = philox.block(static_cast<uint64_t>(place));
    const auto places = static_cast<uint32_t>(2 * config_.shift + 1);
    const auto by = [&](size_t word) {
      return static_cast<int64_t>(words[word] % places) - config_.shift;
    };
    moves[moves.size() - 2] = {by(0), false};
    moves[moves.size() - 1] = {by(1), config_.flip && (words[2] & 1U) != 0};
    return moves;
  }

  static Status check_map(const Tensor& tensor, const OpenedArray& array) {
    if (array.sizes.size() >= 2) return {};
    return data_error(
        fmt::format("'shift' and 'flip' move maps: expected two dims or more of each sample of the "
                    "input '{}', found {}",
                    tensor.name, describe(tensor.dims)));
  }

  static Status check_alike(const OpenedArray& a, const OpenedArray& b) {
    if (a.samples() != b.samples()) {
      return data_error(fmt::format("expected as many samples in '{}' as in '{}', {}, found {}",
                                    b.name, a.name, a.samples(), b.samples()));
    }
    if (a.samples_of_batch != b.samples_of_batch) {
      return data_error(fmt::format(
          "expected arrays with as many samples a batch, found {} by the shape of '{}' and {} by "
          "that of '{}'",
          a.samples_of_batch, a.name, b.samples_of_batch, b.name));
    }
    return {};
  }

  DataWants wants_;
  DataConfig config_;
  std::map<std::string, OpenedArray> arrays_;
  std::optional<SamplePasses> passes_;
};

// Returns whether the tensor is an input that comes from an array. Inputs that the trainer makes
// itself (such as the step's number) do not.
bool has_array(const Tensor& tensor) {
  return tensor.role == Role::kInput && tensor.init.kind == Init::Kind::kNone;
}

}  // namespace

Result<std::unique_ptr<DataSource>> open_arrays(const DataConfig& config, const DataWants& wants) {
  const std::map<std::string, std::string>& files = config.arrays;
  auto source = std::make_unique<ArraySource>(wants, config);
  std::vector<std::string> inputs;
  for (const Tensor& tensor : wants.model->graph.tensors()) {
    if (has_array(tensor)) inputs.push_back(tensor.name);
  }
  for (const auto& [name, path] : files) {
    if (std::find(inputs.begin(), inputs.end(), name) != inputs.end()) continue;
    return data_error(fmt::format("expected arrays for the model's inputs {}, found '{}'",
                                  join(inputs, ", "), name));
  }
  for (const std::string& input : inputs) {
    const auto file = files.find(input);
    if (file == files.end()) {
      return data_error(
          fmt::format("expected an array for each of the model's inputs {}, found "
                      "none for '{}'",
                      join(inputs, ", "), input));
    }
    const Tensor& tensor = wants.model->graph.tensor(wants.model->graph.find_tensor(input));
    ArrayName name = array_name(file->second);
    name.path = found_file(name.path, wants.beside);
    TESSERA_TRY_VOID(source->add(tensor, name));
  }
  return std::unique_ptr<DataSource>(std::move(source));
}

Result<std::map<std::string, std::string>> arrays_of_hdf5(const Hdf5Config& config,
                                                          const Model& model) {
  std::map<std::string, std::string> arrays;
  std::vector<std::string> names;
  for (const Tensor& tensor : model.graph.tensors()) {
    if (!has_array(tensor)) continue;
    names.push_back(tensor.name);
    const std::string& dataset = is_target(tensor.name) ? config.labels : config.inputs;
    arrays[tensor.name] = config.file + ":" + dataset;
  }
  const bool labelled = names.size() == 2 && is_target(names[0]) != is_target(names[1]);
  if (labelled) return arrays;
  return data_error(fmt::format(
      "expected a model with one input and its targets for the keys 'inputs' and 'labels', found "
      "{}; data.arrays names a dataset of each: {{ x = \"{}:NAME\" }}",
      join(names, ", "), config.file));
}

}  // namespace tessera
