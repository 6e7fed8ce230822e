// Dropout, and the random numbers of other formulas.
#include "tessera/runtime/formulas/random.h"

#include <ATen/ATen.h>

#include <array>
#include <functional>

#include "tessera/graph/within.h"
#include "tessera/runtime/kernels/family.h"

namespace tessera::kernels {
namespace {

constexpr int64_t kLow = 0xFFFFFFFF;
constexpr int64_t kBlock = 4;  // words of a block

at::Tensor low(const at::Tensor& x) { return at::bitwise_and(x, kLow); }
at::Tensor high(const at::Tensor& x) { return low(at::bitwise_right_shift(x, 32)); }

// Returns the four words of each block (Philox::block).
std::array<at::Tensor, kBlock> philox(uint64_t seed, uint64_t stream, const at::Tensor& block) {
  const auto all = [&](uint64_t word) {
    return at::full_like(block, static_cast<int64_t>(word & kLow));
  };
  std::array<at::Tensor, kBlock> c = {low(block), high(block), all(stream), all(stream >> 32)};
  auto k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const at::Tensor p0 = c[0] * int64_t{0xD2511F53}, p1 = c[2] * int64_t{0xCD9E8D57};
    c = {at::bitwise_xor(at::bitwise_xor(high(p1), c[1]), int64_t{k0}), low(p1),
         at::bitwise_xor(at::bitwise_xor(high(p0), c[3]), int64_t{k1}), low(p0)};
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return c;
}

// Returns f of the words of n elements from each of `first` on. A row of elements begins at any word
// of its first block.
at::Tensor of_words(uint64_t seed, uint64_t stream, const at::Tensor& first, int64_t n,
                    const std::function<at::Tensor(const at::Tensor&)>& f) {
  const int64_t blocks = (n + kBlock - 2) / kBlock + 1;
  const at::Tensor block =
      at::bitwise_right_shift(first, 2).unsqueeze(-1) + at::arange(blocks, first.options());
  std::vector<at::Tensor> made;
  for (const at::Tensor& words : philox(seed, stream, block)) made.push_back(f(words));
  const at::Tensor all = at::stack(made, -1).flatten(-2);
  const at::Tensor begin = at::bitwise_and(first, kBlock - 1).unsqueeze(-1);
  at::Tensor result = all.narrow(-1, 0, n);
  for (int64_t k = 1; k < kBlock; ++k) result = at::where(begin == k, all.narrow(-1, k, n), result);
  return result;
}

Values dropout(const Call& c) {
  const at::Tensor x = c.aligned(0);
  const Keep keep(c.op());
  const int64_t n = x.dim() == 0 ? 1 : x.size(-1);
  const at::Tensor mask = kept(c, keep, first_indices(c, c.dims_of_output(0), x), n);
  if (!mask.defined()) return {x};
  return {at::where(mask.reshape(x.sizes()), x * keep.factor, at::zeros({}, x.options()))};
}

}  // namespace

at::Tensor random_words(uint64_t seed, uint64_t stream, const at::Tensor& first, int64_t n) {
  return of_words(seed, stream, first, n, [](const at::Tensor& words) { return words; });
}

at::Tensor kept(const Call& c, const Keep& keep, const at::Tensor& first, int64_t n) {
  if (c.context().evaluating) return {};
  return of_words(c.context().seed, keep.stream(c.context().step), first, n,
                  [&](const at::Tensor& words) {
                    return at::bitwise_right_shift(words, 8) >= int64_t{keep.threshold};
                  });
}

at::Tensor first_indices(const Call& c, const std::vector<int>& dims, const at::Tensor& like) {
  const std::vector<Within> places = places_of(c.op(), dims);
  at::Tensor sum = at::zeros({}, at::TensorOptions(at::kLong).device(like.device()));
  int64_t step = 1;
  for (size_t d = dims.size(); d-- > 0;) {
    const auto dim = static_cast<size_t>(dims[d]);
    const Interval box = c.box().dims[dim];
    std::vector<int64_t> list;
    for (int64_t i = box.begin; i < box.end(); ++i)
      list.push_back(places[d].index(i, c.op().annotation.dims[dim].size) * step);
    step *= places[d].whole;
    if (d + 1 == dims.size()) list.resize(1);
    std::vector<int64_t> shape(dims.size() - 1, 1);
    if (d + 1 < dims.size()) shape[d] = box.size;
    sum = sum + numbers(list, like).reshape(shape);
  }
  return sum;
}

at::Tensor rounded_stochastically(const at::Tensor& values, at::ScalarType dtype,
                                  const at::Tensor& words) {
  const at::Tensor kept = values.to(dtype).contiguous(), nearest = kept.to(values.scalar_type());
  const at::Tensor bits = kept.view(at::kShort), above = values > nearest, zero = nearest == 0;
  // For numbers of either sign, adding 1 to the bits gives the next number of larger size.
  const at::Tensor grows = above == at::logical_or(nearest > 0, at::logical_and(zero, values > 0));
  constexpr int64_t kFirstBelow = -32767;  // the bits of the largest number below 0
  const at::Tensor beside = at::where(grows, bits + 1, bits - 1);
  const at::Tensor next = at::where(
      zero, at::where(values > 0, at::ones_like(bits), at::full_like(bits, kFirstBelow)), beside);
  const at::Tensor other = next.view(dtype), farther = other.to(values.scalar_type());
  const at::Tensor share = (values - nearest) / (farther - nearest);
  const at::Tensor drawn =
      at::bitwise_right_shift(words, 8).to(values.scalar_type()) * (1.0 / (1 << 24));
  const at::Tensor moves =
      at::logical_and(at::logical_and(nearest != values, at::isfinite(nearest)),
                      at::logical_and(at::isfinite(farther), drawn < share));
  return at::where(moves, other, kept);
}

std::span<const Formula> random_formulas() {
  static const std::vector<Formula> formulas = {{"dropout", dropout}};
  return formulas;
}

}  // namespace tessera::kernels
