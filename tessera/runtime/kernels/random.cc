// Dropout, initial values and tables. Random numbers come from Philox with the global index of the
// element (base/philox.h).
#include <algorithm>
#include <cmath>
#include <numbers>

#include "tessera/base/check.h"
#include "tessera/base/philox.h"
#include "tessera/runtime/initialise.h"
#include "tessera/runtime/kernels/nest.h"
#include "tessera/runtime/kernels/random.h"
#include "tessera/runtime/kernels/row_loops/rows.h"

namespace tessera::kernels {
namespace {

// Returns the global index of the first element of each row of a region, in the order in which Nest
// visits rows. `shape` is the shape of the whole tensor. place(d, i) returns the place in the whole
// tensor of index i of dim d; along the last dim consecutive indices must have consecutive places.
template <class Place>
std::vector<int64_t> row_starts(const Box& region, const std::vector<int64_t>& shape,
                                Place&& place) {
  const std::vector<int64_t> strides = row_major_strides(shape);
  const size_t rank = region.rank();
  std::vector<int64_t> starts{rank == 0 ? 0 : place(rank - 1, region.dims[rank - 1].begin)};
  for (size_t d = 0; d + 1 < rank; ++d) {
    std::vector<int64_t> next;
    next.reserve(starts.size() * static_cast<size_t>(region.dims[d].size));
    for (const int64_t start : starts) {
      for (int64_t i = 0; i < region.dims[d].size; ++i) {
        next.push_back(start + place(d, region.dims[d].begin + i) * strides[d]);
      }
    }
    starts = std::move(next);
  }
  return starts;
}

// Prepares the kernel with input x, attributes (p, key) and output y = keep(index) ? x / (1 - p) :
// 0, where keep(index) is uniform(index) >= p.
Kernel dropout(const KernelCall& call) {
  return with_compute_type(call.inputs[0].dtype, [&]<class A>() -> Kernel {
    const auto order = op_dims(call.op->annotation.outputs[0]);
    const Array y = rows_of(call.outputs[0]), x = rows_of(input_along(call, 0, order));
    std::vector<int64_t> shape, sizes;
    Box region;
    const std::vector<Within> places = places_of(*call.op, order);
    for (size_t d = 0; d < order.size(); ++d) {
      const auto dim = static_cast<size_t>(order[d]);
      sizes.push_back(call.op->annotation.dims[dim].size);
      shape.push_back(places[d].whole);
      region.dims.push_back(call.box.dims[dim]);
    }
    const std::vector<int64_t> starts = row_starts(
        region, shape, [&](size_t d, int64_t i) { return places[d].index(i, sizes[d]); });
    const Nest<2> nest({&y, &x}, y.shape.size() - 1);
    const Row<A> yr(y), xr(x);
    const Keep keep(*call.op);
    const int64_t n = yr.size();
    auto words = std::make_shared<std::vector<uint32_t>>(static_cast<size_t>(n + 8));
    const KernelContext* context = call.context;
    const RowOps<A>& ops = row_ops<A>();
    return [=, &ops] {
      const Keep now = context->evaluating ? keep.all() : keep;
      const uint64_t stream = now.stream(context->step);
      size_t row = 0;
      nest.each([&](const std::array<std::byte*, 2>& at) {
        const int64_t first = starts[row++], block = first / 4, end = (first + n + 3) / 4;
        philox_words(words->data(), context->seed, stream, static_cast<uint64_t>(block),
                     end - block);
        ops.keep(yr.write(at[0]), xr.read(at[1]), words->data() + (first - 4 * block),
                 now.threshold, static_cast<A>(now.factor), n);
        yr.commit(at[0]);
      });
    };
  });
}

constexpr KernelInfo kRandomKernels[] = {{"dropout", dropout}};

// Computes the n elements of a row whose global indices begin at `first`. A pair of normal numbers
// is made from one Philox block.
void random_row(const Init& init, const Philox& philox, int64_t first, int64_t n, double* out) {
  for (int64_t i = 0; i < n; ++i) {
    const auto index = static_cast<uint64_t>(first + i);
    out[i] = init.kind == Init::Kind::kNormal ? init.value * philox.normal(index)
                                              : init.value * (2 * philox.uniform(index) - 1);
  }
}

// Scales a frequency of rotary embeddings for longer sequences. `sizes` is (factor, low, high,
// positions), where low may equal high. A frequency with at most `low` waves in `positions` positions is divided by the
// factor; one with at least `high` waves stays; between these the result is interpolated linearly.
// If `sizes` has only the factor, all frequencies are divided; if it is empty, none.
double scaled_frequency(double frequency, const std::vector<int64_t>& sizes) {
  if (sizes.empty()) return frequency;
  const auto factor = static_cast<double>(sizes[0]);
  if (sizes.size() == 1) return frequency / factor;
  const auto low = static_cast<double>(sizes[1]), high = static_cast<double>(sizes[2]);
  const double waves = static_cast<double>(sizes[3]) * frequency / (2 * std::numbers::pi);
  const double share = low == high ? (waves >= high ? 1.0 : 0.0)
                                   : std::clamp((waves - low) / (high - low), 0.0, 1.0);
  return (1 - share) * frequency / factor + share * frequency;
}

// Scales frequency `pair` of `pairs` as YaRN does (Peng et al. 2023, arXiv 2309.00071). `sizes` is
// (factor, positions, fast, slow, whole). A pair that turns at least `fast` times in `positions`
// positions keeps its frequency; one that turns at most `slow` times has it divided by the factor;
// between these pairs, whose numbers are rounded outwards if `whole` is 1 (2: as they are), the result goes over
// evenly.
double yarn_frequency(double frequency, double theta, int64_t pair, int64_t pairs,
                      const std::vector<int64_t>& sizes) {
  // Returns the number of the pair that turns so many times, as a real number.
  const auto pair_of = [&](int64_t turns) {
    const double wave =
        static_cast<double>(sizes[1]) / (static_cast<double>(turns) * 2 * std::numbers::pi);
    return static_cast<double>(pairs) * std::log(wave) / std::log(theta);
  };
  double low = pair_of(sizes[2]), high = pair_of(sizes[3]);
  if (sizes[4] == 1) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(2 * pairs - 1));
  if (low == high) high += 0.001;
  const double share = std::clamp((static_cast<double>(pair) - low) / (high - low), 0.0, 1.0);
  return frequency / static_cast<double>(sizes[0]) * share + frequency * (1 - share);
}

// Returns the angle of an element (position, i) of rotary tables [seq, d/2]: position
// times frequency i. The frequency is theta^(-2 i / d), where theta is init.value, scaled
// by scaled_frequency(). Where the sizes are (0, amplitude, factor of each frequency), all in units of
// 1e-15, frequencies are divided by their factor.
constexpr double kFactorUnit = 1e15;
bool has_factors(const Init& init) { return !init.sizes.empty() && init.sizes[0] == 0; }
double rotary_angle(const Init& init, int64_t position, int64_t pair, int64_t pairs) {
  const double frequency =
      std::pow(init.value, -static_cast<double>(pair) / static_cast<double>(pairs));
  if (has_factors(init)) {
    const auto factor = static_cast<double>(init.sizes[static_cast<size_t>(pair) + 2]);
    return static_cast<double>(position) * frequency / (factor / kFactorUnit);
  }
  return static_cast<double>(position) *
         (init.sizes.size() == 5 ? yarn_frequency(frequency, init.value, pair, pairs, init.sizes)
                                 : scaled_frequency(frequency, init.sizes));
}

// Returns the factor of all elements of rotary tables.
double rotary_amplitude(const Init& init) {
  return has_factors(init) ? static_cast<double>(init.sizes[1]) / kFactorUnit : 1;
}

// Returns element `row` of a table of ones that rise: 1 + value ln(1 + floor((row + 1) / size)).
double risen(const Init& init, int64_t row) {
  const int64_t rises = (row + 1) / init.sizes[0];
  return 1 + init.value * std::log1p(static_cast<double>(rises));
}

// Returns T5's bucket of a distance (key - query). Small distances have a bucket each; larger ones
// share buckets by the logarithm of the distance. If `both`, keys after their query have the second
// half of the buckets; otherwise these keys count as distance 0.
int64_t distance_bucket(int64_t distance, int64_t buckets, int64_t furthest, bool both) {
  int64_t first = 0;
  if (both) {
    buckets /= 2;
    if (distance > 0) first = buckets;
    distance = std::abs(distance);
  } else {
    distance = std::max<int64_t>(-distance, 0);
  }
  const int64_t exact = buckets / 2;
  if (distance < exact) return first + distance;
  const double share = std::log(static_cast<double>(distance) / static_cast<double>(exact)) /
                       std::log(static_cast<double>(furthest) / static_cast<double>(exact));
  const auto further = static_cast<int64_t>(share * static_cast<double>(buckets - exact));
  return first + std::min(exact + further, buckets - 1);
}

// Returns element (i, j) of a table of integers (graph.h, Init).
int64_t table_value(const Init& init, int64_t i, int64_t j) {
  const std::vector<int64_t>& sizes = init.sizes;
  if (init.kind == Init::Kind::kDistanceBuckets) {
    return distance_bucket(j - i, sizes[0], sizes[1], sizes[2] != 0);
  }
  const int64_t side = sizes[0], row = i / side, column = i % side;
  if (init.kind == Init::Kind::kWindowPairs) {
    return (row - j / side + side - 1) * (2 * side - 1) + column - j % side + side - 1;
  }
  // The third kind numbers the regions of shifted windows. Windows of the last row and column have
  // elements from the other end of the map, which are other regions.
  const int64_t shift = sizes[1], windows = sizes[2], window = j % (windows * windows);
  const auto band = [&](int64_t place, int64_t index) {
    return index + 1 < windows ? 0 : place + shift < side ? 1 : 2;
  };
  return 3 * band(row, window / windows) + band(column, window % windows);
}

}  // namespace

Keep::Keep(const Op& op)
    : p(op.number("p")),
      threshold(static_cast<uint32_t>(std::ceil(p * 0x1p24))),
      factor(1.0 / (1.0 - p)) {
  const std::string text = op.text("key");
  key = stable_hash(text.data(), text.size());
}

Keep Keep::all() const {
  Keep keep = *this;
  keep.p = 0;
  keep.threshold = 0;
  keep.factor = 1;
  return keep;
}

uint64_t Keep::stream(int64_t step) const {
  return stable_hash(reinterpret_cast<const char*>(&step), sizeof step, key);
}

std::vector<Within> places_of(const Op& op, const std::vector<int>& dims) {
  const auto within = parse_within(op.text("within"));
  TESSERA_CHECK(within.has_value(), "{}", op.path);
  std::vector<Within> places;
  for (const int dim : dims) {
    const OpDim& op_dim = op.annotation.dims[static_cast<size_t>(dim)];
    const auto found = std::find_if(within->begin(), within->end(),
                                    [&](const Within& one) { return one.dim == op_dim.name; });
    places.push_back(found == within->end() ? Within{op_dim.name, 0, op_dim.size, 1} : *found);
  }
  return places;
}

std::span<const KernelInfo> random_kernels() { return kRandomKernels; }

}  // namespace tessera::kernels

namespace tessera {

void initialise(const Tensor& tensor, const Box& region, uint64_t seed, const kernels::Array& to) {
  using namespace kernels;
  if (region.empty() || tensor.init.kind == Init::Kind::kNone) return;
  if (size_count(tensor.init.kind) > 0) {
    for (int64_t i = 0; i < region.dims[0].size; ++i) {
      for (int64_t j = 0; j < region.dims[1].size; ++j) {
        reinterpret_cast<int64_t*>(to.data)[i * to.strides[0] + j * to.strides[1]] =
            table_value(tensor.init, region.dims[0].begin + i, region.dims[1].begin + j);
      }
    }
    return;
  }
  if (to.dtype == DType::kInt64) {  // tables whose elements are all equal
    const double number = tensor.init.kind == Init::Kind::kOnes       ? 1
                          : tensor.init.kind == Init::Kind::kConstant ? tensor.init.value
                                                                      : 0;
    Nest<1>({&to}, to.shape.size()).each([&](const std::array<std::byte*, 1>& at) {
      *reinterpret_cast<int64_t*>(at[0]) = static_cast<int64_t>(number);
    });
    return;
  }
  const Array array = rows_of(to);
  const std::vector<int64_t> shape = tensor.shape(),
                             starts =
                                 row_starts(region, shape, [](size_t, int64_t i) { return i; });
  const Nest<1> nest({&array}, array.shape.size() - 1);
  const Row<double> row(array);
  const Init& init = tensor.init;
  const Philox philox{seed, stable_hash(tensor.name.data(), tensor.name.size())};
  const int64_t n = row.size(), last = shape.empty() ? 1 : shape.back();
  size_t index = 0;
  nest.each([&](const std::array<std::byte*, 1>& at) {
    double* out = row.write(at[0]);
    const int64_t first = starts[index++];
    switch (init.kind) {
      case Init::Kind::kLearningRate:  // the trainer sets these in each step
      case Init::Kind::kStep:
      case Init::Kind::kDistanceBuckets:  // these are integers, written above
      case Init::Kind::kWindowPairs:
      case Init::Kind::kWindowRegions:
      case Init::Kind::kNone: break;
      case Init::Kind::kZeros: std::fill_n(out, n, 0.0); break;
      case Init::Kind::kOnes:
        std::fill_n(out, n, 1.0);
        for (int64_t i = 0; i < n && !init.sizes.empty(); ++i) out[i] = risen(init, first + i);
        break;
      case Init::Kind::kConstant: std::fill_n(out, n, init.value); break;
      case Init::Kind::kNormal:
      case Init::Kind::kUniform: random_row(init, philox, first, n, out); break;
      case Init::Kind::kRotaryCos:
      case Init::Kind::kRotarySin:
        for (int64_t i = 0; i < n; ++i) {
          const double angle = rotary_angle(init, first / last, first % last + i, last);
          out[i] = rotary_amplitude(init) *
                   (init.kind == Init::Kind::kRotaryCos ? std::cos(angle) : std::sin(angle));
        }
        break;
    }
    row.commit(at[0]);
  });
}

}  // namespace tessera
