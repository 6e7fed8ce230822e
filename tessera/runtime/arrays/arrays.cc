#include "tessera/runtime/arrays/arrays.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "tessera/base/permutation.h"
#include "tessera/base/philox.h"
#include "tessera/base/text.h"
#include "tessera/data/array_file.h"
#include "tessera/data/match_files.h"
#include "tessera/data/numbers.h"
#include "tessera/runtime/data/data_store.h"
#include "tessera/runtime/data/inputs.h"
#include "tessera/runtime/data/sample_passes.h"
#include "tessera/runtime/kernels/nest.h"

namespace tessera {
namespace {

// The change of one dim of a sample: a shift, and after the shift perhaps a mirroring.
struct Move {
  int64_t by = 0;
  bool mirrored = false;
  // Returns the element that moves to place `at`; a result outside of [0, size) means that no
  // element moves there.
  int64_t source(int64_t at, int64_t size) const { return (mirrored ? size - 1 - at : at) - by; }
  // Returns the places to which the elements `have` move, counted from the begin of the interval
  // `at`. Consecutive elements move to consecutive places.
  Interval places(Interval have, Interval at, int64_t size) const {
    if (have.empty()) return {};
    const int64_t first = mirrored ? size - 1 - (have.end() - 1 + by) : have.begin + by;
    return {first - at.begin, have.size};
  }
  // Returns the interval of elements that move into the places `at`.
  Interval sources(Interval at, int64_t size) const {
    if (at.empty()) return {};
    const int64_t first = source(mirrored ? at.end() - 1 : at.begin, size);
    return intersect({first, at.size}, {0, size});
  }
};
using Moves = SmallVector<Move, 4>;  // one for each dim of a sample

struct OpenedArray {
  std::string name;  // name of the file, with the dataset
  std::unique_ptr<ArrayFile> file;
  int64_t sample_elements = 1;   // elements of one sample
  int64_t samples_of_batch = 0;  // samples of a batch of the input
  size_t leading = 0;            // dims of the input that count samples
  // For each dim of a sample in the input: the array's dim, or 0 if the dim has one element and the
  // array lacks it. Empty if a sample is flat in the array.
  std::vector<size_t> dims;
  std::vector<int64_t> sizes, strides;  // by dim of a sample in the input
  int64_t values = 0;                   // an integer input's elements are in [0, values)
  bool ignores = false;                 // whether an integer input may have -1
  double scale = 1;                     // factor of a floating input
  int64_t ahead = 0;                    // how many steps later samples are taken from
  bool moved = false;  // whether samples are shifted or mirrored along their last two dims

  int64_t samples() const { return file->shape().front(); }
};

std::vector<int64_t> without_ones(std::vector<int64_t> shape) {
  std::erase(shape, 1);
  return shape;
}

int64_t product_of(const std::vector<int64_t>& sizes) { return Box::whole(sizes).volume(); }

// Finds how many leading dims of the input count samples, and which dims of the array belong to the
// other dims of the input. Returns whether the array fits the input.
bool match_dims(const std::vector<int64_t>& input, OpenedArray& array) {
  const std::vector<int64_t>& shape = array.file->shape();
  if (shape.empty()) return false;
  const std::vector<int64_t> sample(shape.begin() + 1, shape.end());
  for (size_t leading = 1; leading <= input.size(); ++leading) {
    const std::vector<int64_t> rest(input.begin() + static_cast<int64_t>(leading), input.end());
    const bool same = without_ones(sample) == without_ones(rest);
    const bool flat = sample.size() == 1 && sample.front() == product_of(rest);
    if (!same && !flat) continue;
    array.leading = leading;
    array.sizes = rest;
    array.strides = row_major_strides(rest);
    size_t at = 1;
    for (size_t d = 0; same && d < rest.size(); ++d) {
      while (rest[d] != 1 && shape[at] == 1) ++at;
      array.dims.push_back(rest[d] == 1 ? 0 : at++);
    }
    return true;
  }
  return false;
}

// Reads the box `rest` of a sample, which is given in the input's dims, to `to`: row-major, packed.
Status read_sample(const OpenedArray& array, int64_t sample, const Box& rest, std::byte* to) {
  Box box = Box::whole(array.file->shape());
  box.dims[0] = {sample, 1};
  if (!array.dims.empty() || rest.rank() == 0) {
    for (size_t d = 0; d < rest.rank(); ++d) {
      if (array.dims[d] > 0) box.dims[array.dims[d]] = rest.dims[d];
    }
    return array.file->read(box, to);
  }
  // The array is flat. Reads one run of consecutive elements for the inner dims that the box has in
  // whole, at each position of the outer dims.
  size_t inner = rest.rank();
  int64_t run = 1;
  bool whole = true;
  while (inner > 0 && whole) {
    --inner;
    const int64_t size = inner == 0 ? array.sample_elements / array.strides[0]
                                    : array.strides[inner - 1] / array.strides[inner];
    run *= rest.dims[inner].size;
    whole = rest.dims[inner].size == size;
  }
  std::vector<int64_t> at(inner, 0);
  for (int64_t done = 0; done < rest.volume(); done += run) {
    int64_t from = rest.dims[inner].begin * array.strides[inner];
    for (size_t d = 0; d < inner; ++d) from += (rest.dims[d].begin + at[d]) * array.strides[d];
    box.dims[1] = {from, run};
    TESSERA_TRY_VOID(array.file->read(box, to));
    to += run * number_bytes(array.file->number());
    for (size_t d = inner; d-- > 0 && ++at[d] == rest.dims[d].size;) at[d] = 0;
  }
  return {};
}

// Returns the box of a sample's elements that move into the box `rest`.
Box sources(const OpenedArray& array, const Box& rest, const Moves& moves) {
  Box from = rest;
  for (size_t d = 0; d < rest.rank(); ++d)
    from.dims[d] = moves[d].sources(rest.dims[d], array.sizes[d]);
  return from;
}

template <class To, class From>
To number_as(const std::byte* at) {
  return static_cast<To>(read_number<From>(at));
}

// Calls f for each element of the box, in row-major order, with the element's coordinates, counted
// from the box's first element, and the number of elements before it.
template <class F>
void each_place(const Box& box, F&& f) {
  std::vector<int64_t> at(box.rank(), 0);
  const int64_t volume = box.volume();
  for (int64_t i = 0; i < volume; ++i) {
    f(at, i);
    for (size_t d = at.size(); d-- > 0 && ++at[d] == box.dims[d].size;) at[d] = 0;
  }
}

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
    return load_parts(step, tensor, region, to, [&](Part& part) {
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
    return load_parts(step, tensor, region, to, [&](Part& part) -> Status {
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

  // A box of a sample and the numbers that were read for it.
  struct Part {
    int64_t sample = 0;
    Box box;
    const std::byte* numbers = nullptr;
  };

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
      const Moves moves = moves_of(array, tensor.name, place);
      Part part{sample_at(array, place), sources(array, rest, moves), nullptr};
      if (status && !part.box.empty()) status = read(part);
      if (!status) return;
      status = store_all(array, part, rest, moves, to.data + begin * bytes, to);
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
  Moves moves_of(const OpenedArray& array, const std::string& input, int64_t place) const {
    Moves moves;
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

  // Stores the elements that move into the box `rest` of a sample, and zeros at places of the box
  // to which no element moves. `at` is the address of the box's first element.
  Status store_all(const OpenedArray& array, const Part& part, const Box& rest, const Moves& moves,
                   std::byte* at, const kernels::Array& to) const {
    const int64_t bytes = dtype_bytes(to.dtype), step = number_bytes(array.file->number());
    const size_t joined = first_joined(array, part, rest, moves, to);
    const Box outer(
        Box::Dims(rest.dims.begin(), rest.dims.begin() + static_cast<ptrdiff_t>(joined)));
    // The innermost loop stores `length` elements at once. The interval `inside` of them gets
    // numbers of the sample, the others get zeros.
    Run run{.stride = rest.rank() == 0 ? bytes : to.strides.back() * bytes, .step = step};
    int64_t length = 1;
    for (size_t d = joined; d < rest.rank(); ++d) length *= rest.dims[d].size;
    Interval inside{0, length};
    if (joined + 1 == rest.rank()) {
      const size_t d = joined;
      inside = moves[d].places(part.box.dims[d], rest.dims[d], array.sizes[d]);
      if (moves[d].mirrored) run.step = -step;
    }
    run.count = inside.size;
    Status status;
    each_place(outer, [&](const std::vector<int64_t>& place, int64_t) {
      int64_t offset = 0, element = part.sample * array.sample_elements, number = 0;
      bool has_numbers = !inside.empty();
      for (size_t d = 0; d < rest.rank(); ++d) {
        const Interval have = part.box.dims[d];
        const int64_t there = d < joined                            ? place[d]
                              : d + 1 == rest.rank() && d == joined ? inside.begin
                                                                    : 0;
        const int64_t from = moves[d].source(rest.dims[d].begin + there, array.sizes[d]);
        if (d < joined) offset += place[d] * to.strides[array.leading + d] * bytes;
        element += from * array.strides[d];
        number = number * have.size + from - have.begin;
        has_numbers = has_numbers && from >= have.begin && from < have.end();
      }
      const Interval filled = has_numbers ? inside : Interval{0, 0};
      zeros(at + offset, run.stride, {0, filled.begin}, to.dtype);
      zeros(at + offset, run.stride, {filled.end(), length - filled.end()}, to.dtype);
      if (filled.empty()) return;
      run.source = part.numbers + number * step;
      run.at = at + offset + inside.begin * run.stride;
      run.element = element;
      if (auto stored = store(array, run, to.dtype); !stored && status) status = std::move(stored);
    });
    return status;
  }

  // Returns the first of the inner dims over which one loop can run, because their elements are
  // consecutive in the sample, in the part that was read and at the destination. These dims are
  // neither moved nor mirrored nor read in part, except if only the last dim is left, which is
  // always looped over by itself.
  static size_t first_joined(const OpenedArray& array, const Part& part, const Box& rest,
                             const Moves& moves, const kernels::Array& to) {
    if (rest.rank() == 0) return 0;
    const auto is_plain = [&](size_t d) {
      return moves[d].by == 0 && !moves[d].mirrored && part.box.dims[d] == rest.dims[d];
    };
    size_t d = rest.rank() - 1;
    while (d > 0 && is_plain(d) && is_plain(d - 1) && rest.dims[d].size == array.sizes[d] &&
           to.strides[array.leading + d - 1] == to.strides[array.leading + d] * rest.dims[d].size) {
      --d;
    }
    return d;
  }

  // Numbers that are read one after the other, forwards or backwards, and stored at
  // equal distances.
  struct Run {
    int64_t stride = 0, step = 0;  // bytes between elements of the destination, and between numbers
    int64_t count = 0;
    const std::byte* source = nullptr;
    std::byte* at = nullptr;
    int64_t element = 0;  // index, in the array, of the run's first element
    int64_t element_of(int64_t i) const { return step < 0 ? element - i : element + i; }
  };

  static void zeros(std::byte* at, int64_t stride, Interval places, DType dtype) {
    for (int64_t i = places.begin; i < places.end(); ++i)
      kernels::store_element(at + i * stride, dtype, 0.0);
  }

  Status store(const OpenedArray& array, const Run& run, DType dtype) const {
    return with_number(array.file->number(), [&](auto type) {
      using From = decltype(type);
      if (!is_floating(dtype)) return store_integers<From>(array, run);
      if (dtype == DType::kFloat32) {
        return store_floating<From>(array, run, [](std::byte* at, double value) {
          const auto narrow = static_cast<float>(value);
          std::memcpy(at, &narrow, sizeof narrow);
        });
      }
      return store_floating<From>(array, run, [&](std::byte* at, double value) {
        kernels::store_element(at, dtype, value);
      });
    });
  }

  template <class From, class Put>
  static Status store_floating(const OpenedArray& array, const Run& run, Put&& put) {
    int64_t first_nan = run.count;
    for (int64_t i = 0; i < run.count; ++i) {
      const auto value = number_as<double, From>(run.source + i * run.step);
      if (std::isnan(value)) first_nan = std::min(first_nan, i);
      put(run.at + i * run.stride, array.scale * value);
    }
    if (first_nan == run.count) return {};
    return data_error(fmt::format("'{}', element {}: expected a number, found NaN", array.name,
                                  run.element_of(first_nan)));
  }

  template <class From>
  static Status store_integers(const OpenedArray& array, const Run& run) {
    for (int64_t i = 0; i < run.count; ++i) {
      const auto value = number_as<int64_t, From>(run.source + i * run.step);
      if ((value >= 0 && value < array.values) || (value == -1 && array.ignores)) {
        std::memcpy(run.at + i * run.stride, &value, sizeof value);
        continue;
      }
      return data_error(fmt::format("'{}', element {}: expected a number from 0 to {}, found {}",
                                    array.name, run.element_of(i), array.values - 1, value));
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
