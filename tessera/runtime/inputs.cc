#include "tessera/runtime/inputs.h"

#include <vector>

#include "tessera/base/check.h"
#include "tessera/base/philox.h"
#include "tessera/runtime/kernels/nest.h"

namespace tessera {
namespace {

constexpr const char* kTargets = "targets";

// Calls f(local offset in elements of `to`, global row-major index) for each element of the region.
template <class F>
void each_element(const Tensor& tensor, const Box& region, const kernels::Array& to, F&& f) {
  const std::vector<int64_t> strides = row_major_strides(tensor.shape());
  std::vector<int64_t> at(region.rank(), 0);
  const int64_t volume = region.volume();
  for (int64_t i = 0; i < volume; ++i) {
    int64_t index = 0, offset = 0;
    for (size_t d = 0; d < at.size(); ++d) {
      index += (region.dims[d].begin + at[d]) * strides[d];
      offset += at[d] * to.strides[d];
    }
    f(offset, index);
    for (size_t d = at.size(); d-- > 0 && ++at[d] == region.dims[d].size;) at[d] = 0;
  }
}

}  // namespace

void load_text(const TextData& data, int64_t seed, int64_t step, const Tensor& tensor,
               const Box& region, const kernels::Array& to) {
  TESSERA_CHECK(tensor.dtype == DType::kInt64 && region.rank() == 2 && to.strides[1] == 1,
                "text cannot give input {}", tensor.name);
  const int64_t shift = tensor.name == kTargets ? 1 : 0;
  auto* out = reinterpret_cast<int64_t*>(to.data);
  for (int64_t row = 0; row < region.dims[0].size; ++row) {
    data.read(seed, step, region.dims[0].begin + row, region.dims[1].begin + shift,
              region.dims[1].size, out + row * to.strides[0]);
  }
}

void load_random(int64_t vocab, int64_t seed, int64_t step, const Tensor& tensor, const Box& region,
                 const kernels::Array& to) {
  const bool integers = !is_floating(tensor.dtype);
  const std::string_view stream =
      integers ? std::string_view("tokens") : std::string_view(tensor.name);
  const Philox philox{static_cast<uint64_t>(seed),
                      stable_hash(stream.data(), stream.size(), static_cast<uint64_t>(step))};
  // Sequences have one more token than the tensor.
  const int64_t seq = tensor.dims.size() == 2 ? tensor.dims[1].size : 0;
  const int64_t shift = seq > 0 && tensor.name == kTargets ? 1 : 0;
  each_element(tensor, region, to, [&](int64_t offset, int64_t index) {
    std::byte* at = to.data + offset * dtype_bytes(to.dtype);
    if (!integers) {
      kernels::store_element(at, to.dtype, 2 * philox.uniform(static_cast<uint64_t>(index)) - 1);
      return;
    }
    const int64_t token = seq > 0 ? index / seq * (seq + 1) + index % seq + shift : index;
    *reinterpret_cast<int64_t*>(at) =
        static_cast<int64_t>(philox.bits(static_cast<uint64_t>(token))) % vocab;
  });
}

void load_scalar(double value, const kernels::Array& to) {
  kernels::store_element(to.data, to.dtype, value);
}

}  // namespace tessera
