#include "tessera/runtime/arrays.h"

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
#include "tessera/data/mapped_file.h"
#include "tessera/data/match_files.h"
#include "tessera/data/numbers.h"
#include "tessera/runtime/inputs.h"
#include "tessera/runtime/kernels/nest.h"

namespace tessera {
namespace {

// The last two dims of an input.
struct Map {
  int64_t height = 1, width = 1;
};

// How the map of a sample is moved.
struct Move {
  int64_t down = 0, right = 0;
  bool mirrored = false;
  // The element that comes to stand there; -1: none does.
  int64_t source(int64_t element, const Map& map) const {
    const int64_t row = element / map.width, x = element % map.width, y = row % map.height;
    const int64_t from_x = (mirrored ? map.width - 1 - x : x) - right, from_y = y - down;
    if (from_x < 0 || from_x >= map.width || from_y < 0 || from_y >= map.height) return -1;
    return (row - y + from_y) * map.width + from_x;
  }
};

struct OpenedArray {
  std::string path;
  MappedFile file;
  NpyHeader header;
  int64_t sample_elements = 1;   // of one sample
  int64_t samples_of_batch = 0;  // the input's
  int64_t values = 0;            // of an integer input: in [0, values)
  bool ignores = false;          // -1 is allowed
  int64_t ahead = 0;             // steps
  std::optional<Map> map = {};   // whose elements are moved

  int64_t samples() const { return header.shape.front(); }
};

tl::unexpected<Error> data_error(std::string_view message) {
  return invalid_input(fmt::format("data: {}", message));
}

std::vector<int64_t> without_ones(std::vector<int64_t> shape) {
  std::erase(shape, 1);
  return shape;
}

// How many leading dims of the input count samples, if the array fits; 0: it does not.
size_t dims_of_samples(const std::vector<int64_t>& input, const NpyHeader& header) {
  const std::vector<int64_t> sample(header.shape.begin() + 1, header.shape.end());
  for (size_t leading = 1; leading <= input.size(); ++leading) {
    const std::vector<int64_t> rest(input.begin() + static_cast<int64_t>(leading), input.end());
    const NpyHeader inner{Number::kUint8, rest, 0};
    const bool flat = sample.size() == 1 && sample.front() == inner.volume();
    if (flat || without_ones(sample) == without_ones(rest)) return leading;
  }
  return 0;
}

class ArraySource : public DataSource {
 public:
  ArraySource(const DataWants& wants, const DataConfig& config)
      : wants_(wants), scale_(config.scale), config_(config) {}

  Status add(const Tensor& tensor, const std::string& path) {
    OpenedArray array;
    array.path = path;
    auto file = MappedFile::open(path);
    if (!file) return data_error(file.error().message);
    array.file = std::move(*file);
    auto header = read_npy_header(array.file.bytes(), array.file.size());
    if (!header) return data_error(fmt::format("'{}': {}", path, header.error().message));
    array.header = std::move(*header);
    const std::vector<int64_t> shape = tensor.shape();
    const size_t leading = array.header.shape.empty() ? 0 : dims_of_samples(shape, array.header);
    if (leading == 0) {
      return data_error(fmt::format(
          "'{}': expected the shape [samples, {}] for the input '{}', found [{}]", path,
          fmt::join(shape.begin() + std::min<int64_t>(1, static_cast<int64_t>(shape.size())),
                    shape.end(), ", "),
          tensor.name, fmt::join(array.header.shape, ", ")));
    }
    const bool integers = !is_floating(tensor.dtype);
    if (integers && !is_integer(array.header.number)) {
      return data_error(fmt::format("'{}': expected integers for the input '{}', found {}", path,
                                    tensor.name, number_name(array.header.number)));
    }
    array.samples_of_batch = 1;
    for (size_t d = 0; d < leading; ++d) array.samples_of_batch *= shape[d];
    array.sample_elements = array.header.volume() / array.samples();
    if (integers) {
      array.values = values_of_input(*wants_.model, tensor);
      array.ignores = is_target(tensor.name) || holds_bags(wants_.model->graph, tensor);
    }
    if (const auto ahead = config_.ahead.find(tensor.name); ahead != config_.ahead.end())
      array.ahead = ahead->second;
    if (!integers && (config_.shift > 0 || config_.flip)) {
      TESSERA_TRY_VOID(check_map(tensor, leading));
      array.map = {shape[shape.size() - 2], shape.back()};
    }
    if (!arrays_.empty()) TESSERA_TRY_VOID(check_alike(arrays_.begin()->second, array));
    arrays_.emplace(tensor.name, std::move(array));
    return {};
  }

  Status load(int64_t step, const Tensor& tensor, const Box& region,
              const kernels::Array& to) const override {
    const OpenedArray& array = arrays_.at(tensor.name);
    const int64_t first = (step - 1 + array.ahead) * array.samples_of_batch;
    int64_t known = -1, sample = 0;
    Move move;
    Status status;
    each_element(tensor, region, to, [&](int64_t offset, int64_t index) {
      const int64_t place = first + index / array.sample_elements;
      if (place != known) {
        known = place;
        sample = place % array.samples();
        if (!wants_.in_order) {
          sample = permuted(sample, array.samples(), wants_.seed, wants_.stream,
                            place / array.samples());
        }
        if (array.map.has_value()) move = draw(tensor.name, place);
      }
      const int64_t element = array.map.has_value()
                                  ? move.source(index % array.sample_elements, *array.map)
                                  : index % array.sample_elements;
      if (element < 0) {
        kernels::store_element(to.data + offset * dtype_bytes(to.dtype), to.dtype, 0.0);
        return;
      }
      const int64_t from = sample * array.sample_elements + element;
      if (auto stored = store(array, from, to.data + offset * dtype_bytes(to.dtype), to.dtype);
          !stored && status) {
        status = std::move(stored);
      }
    });
    return status;
  }

  int64_t samples() const override {
    return arrays_.empty() ? 0 : arrays_.begin()->second.samples();
  }
  int64_t files() const override { return static_cast<int64_t>(arrays_.size()); }
  int64_t bytes() const override {
    int64_t bytes = 0;
    for (const auto& [name, array] : arrays_) bytes += array.file.size();
    return bytes;
  }

 private:
  Status check_map(const Tensor& tensor, size_t leading) const {
    if (tensor.dims.size() >= leading + 2) return {};
    return data_error(
        fmt::format("'shift' and 'flip' move maps: expected two dims or more of each sample of the "
                    "input '{}', found {}",
                    tensor.name, describe(tensor.dims)));
  }

  // By counters of its own for each input and place of the run.
  Move draw(const std::string& input, int64_t place) const {
    const std::string stream = wants_.stream + ".moves." + input;
    const Philox philox{static_cast<uint64_t>(wants_.seed),
                        stable_hash(stream.data(), stream.size())};
    const std::array<uint32_t, 4> words = philox.block(static_cast<uint64_t>(place));
    const auto places = static_cast<uint32_t>(2 * config_.shift + 1);
    return {static_cast<int64_t>(words[0] % places) - config_.shift,
            static_cast<int64_t>(words[1] % places) - config_.shift,
            config_.flip && (words[2] & 1U) != 0};
  }

  static Status check_alike(const OpenedArray& a, const OpenedArray& b) {
    if (a.samples() != b.samples()) {
      return data_error(fmt::format("expected as many samples in '{}' as in '{}', {}, found {}",
                                    b.path, a.path, a.samples(), b.samples()));
    }
    if (a.samples_of_batch != b.samples_of_batch) {
      return data_error(fmt::format(
          "expected arrays with as many samples a batch, found {} by the shape of '{}' and {} by "
          "that of '{}'",
          a.samples_of_batch, a.path, b.samples_of_batch, b.path));
    }
    return {};
  }

  Status store(const OpenedArray& array, int64_t from, std::byte* at, DType dtype) const {
    const std::byte* source =
        array.file.bytes() + array.header.offset + from * number_bytes(array.header.number);
    const auto read = [&](auto wanted) {
      return with_number(array.header.number, [&](auto type) {
        return static_cast<decltype(wanted)>(read_number<decltype(type)>(source));
      });
    };
    if (is_floating(dtype)) {
      kernels::store_element(at, dtype, scale_ * read(double{}));
      return {};
    }
    const int64_t value = read(int64_t{});
    if ((value >= 0 && value < array.values) || (value == -1 && array.ignores)) {
      std::memcpy(at, &value, sizeof value);
      return {};
    }
    return data_error(fmt::format("'{}', element {}: expected a number from 0 to {}, found {}",
                                  array.path, from, array.values - 1, value));
  }

  DataWants wants_;
  double scale_;
  DataConfig config_;
  std::map<std::string, OpenedArray> arrays_;
};

}  // namespace

Result<std::unique_ptr<DataSource>> open_arrays(const DataConfig& config, const DataWants& wants) {
  const std::map<std::string, std::string>& files = config.arrays;
  auto source = std::make_unique<ArraySource>(wants, config);
  std::vector<std::string> inputs;
  for (const Tensor& tensor : wants.model->graph.tensors()) {
    if (tensor.role == Role::kInput && tensor.init.kind == Init::Kind::kNone)
      inputs.push_back(tensor.name);
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
    TESSERA_TRY_VOID(source->add(tensor, found_file(file->second, wants.beside)));
  }
  return std::unique_ptr<DataSource>(std::move(source));
}

}  // namespace tessera
