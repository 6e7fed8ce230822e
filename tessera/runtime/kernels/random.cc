// Dropout and initial values by Philox on the global element index (base/philox.h).
#include <algorithm>
#include <cmath>

#include "tessera/base/check.h"
#include "tessera/base/philox.h"
#include "tessera/graph/within.h"
#include "tessera/runtime/initialise.h"
#include "tessera/runtime/kernels/nest.h"
#include "tessera/runtime/kernels/rows.h"

namespace tessera::kernels {
namespace {

// The global index of the first element of each row of a region of a tensor of that shape, in the
// order in which Nest visits rows. place(d, i): where index i of dim d lies; along the last dim
// consecutive indices lie together.
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

uint64_t attribute_key(const Op& op) {
  const auto found = op.attributes.find("key");
  if (found == op.attributes.end()) return stable_hash(op.path.data(), op.path.size());
  if (const auto* text = std::get_if<std::string>(&found->second))
    return stable_hash(text->data(), text->size());
  return static_cast<uint64_t>(std::get<int64_t>(found->second));
}

// (x; p, key) -> y = keep(index) ? x / (1 - p) : 0, keep = uniform(index) >= p
Kernel dropout(const KernelCall& call) {
  return with_compute_type(call.inputs[0].dtype, [&]<class A>() -> Kernel {
    const auto order = op_dims(call.op->annotation.outputs[0]);
    const Array y = rows_of(call.outputs[0]), x = rows_of(input_along(call, 0, order));
    std::vector<int64_t> shape, sizes;
    Box region;
    std::vector<Within> places;  // by dim
    const auto within = parse_within(call.op->text("within"));
    TESSERA_CHECK(within.has_value(), "{}", call.op->path);
    for (const int dim : order) {
      const OpDim& op_dim = call.op->annotation.dims[static_cast<size_t>(dim)];
      const auto found = std::find_if(within->begin(), within->end(),
                                      [&](const Within& one) { return one.dim == op_dim.name; });
      places.push_back(found == within->end() ? Within{op_dim.name, 0, op_dim.size, 1} : *found);
      sizes.push_back(op_dim.size);
      shape.push_back(places.back().whole);
      region.dims.push_back(call.box.dims[static_cast<size_t>(dim)]);
    }
    const std::vector<int64_t> starts = row_starts(
        region, shape, [&](size_t d, int64_t i) { return places[d].index(i, sizes[d]); });
    const Nest<2> nest({&y, &x}, y.shape.size() - 1);
    const Row<A> yr(y), xr(x);
    const double p = call.op->number("p");
    const auto threshold = static_cast<uint32_t>(std::ceil(p * 0x1p24));
    const A factor = static_cast<A>(1.0 / (1.0 - p));
    const uint64_t key = attribute_key(*call.op);
    const int64_t n = yr.size();
    auto words = std::make_shared<std::vector<uint32_t>>(static_cast<size_t>(n + 8));
    const KernelContext* context = call.context;
    const RowOps<A>& ops = row_ops<A>();
    return [=, &ops] {
      const int64_t step = context->step;
      const uint64_t stream = stable_hash(reinterpret_cast<const char*>(&step), sizeof step, key);
      size_t row = 0;
      nest.each([&](const std::array<std::byte*, 2>& at) {
        const int64_t first = starts[row++], block = first / 4, end = (first + n + 3) / 4;
        philox_words(words->data(), context->seed, stream, static_cast<uint64_t>(block),
                     end - block);
        ops.keep(yr.write(at[0]), xr.read(at[1]), words->data() + (first - 4 * block), threshold,
                 factor, n);
        yr.commit(at[0]);
      });
    };
  });
}

bool always(const Op&, int) { return true; }

constexpr KernelInfo kKernels[] = {{"dropout", dropout, 0, always}};

// Values of elements [first, first + n) of a row; normal() pairs lie in one Philox block.
void random_row(const Init& init, const Philox& philox, int64_t first, int64_t n, double* out) {
  for (int64_t i = 0; i < n; ++i) {
    const auto index = static_cast<uint64_t>(first + i);
    out[i] = init.kind == Init::Kind::kNormal ? init.value * philox.normal(index)
                                              : init.value * (2 * philox.uniform(index) - 1);
  }
}

// Rotary tables [seq, d/2]: angle = position * theta^(-2 i / d).
double rotary_angle(double theta, int64_t position, int64_t pair, int64_t pairs) {
  return static_cast<double>(position) *
         std::pow(theta, -static_cast<double>(pair) / static_cast<double>(pairs));
}

}  // namespace

std::span<const KernelInfo> random_kernels() { return kKernels; }

}  // namespace tessera::kernels

namespace tessera {

void initialise(const Tensor& tensor, const Box& region, uint64_t seed, const kernels::Array& to) {
  using namespace kernels;
  if (region.empty() || tensor.init.kind == Init::Kind::kNone) return;
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
      case Init::Kind::kLearningRate:  // the trainer's, in each step
      case Init::Kind::kStep:
      case Init::Kind::kNone: break;
      case Init::Kind::kZeros: std::fill_n(out, n, 0.0); break;
      case Init::Kind::kOnes: std::fill_n(out, n, 1.0); break;
      case Init::Kind::kConstant: std::fill_n(out, n, init.value); break;
      case Init::Kind::kNormal:
      case Init::Kind::kUniform: random_row(init, philox, first, n, out); break;
      case Init::Kind::kRotaryCos:
      case Init::Kind::kRotarySin:
        for (int64_t i = 0; i < n; ++i) {
          const double angle = rotary_angle(init.value, first / last, first % last + i, last);
          out[i] = init.kind == Init::Kind::kRotaryCos ? std::cos(angle) : std::sin(angle);
        }
        break;
    }
    row.commit(at[0]);
  });
}

}  // namespace tessera
