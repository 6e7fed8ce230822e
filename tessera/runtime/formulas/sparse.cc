// Formulas of sparse products (sparse/graphs/spmm.h). A row is an interval of the edges; intervals may
// overlap. Where all edges of a row count, it is a sum of intervals of 1, 2, 4, .. edges, one for each
// bit of its degree; the sums of all such intervals are made from those of half the size. Where edges
// are sampled, slots are taken one after the other.
//
// Numbers of each edge are made for a few features at a time, so that they are no larger than the
// operands. Several rows may add to one element of a gradient: on a GPU the order of these additions
// is fixed by libtorch's deterministic mode (configure_process()).
#include <ATen/ATen.h>

#include <algorithm>
#include <bit>

#include "tessera/runtime/formulas/call.h"
#include "tessera/runtime/kernels/family.h"
#include "tessera/sparse/graphs/named_rows.h"
#include "tessera/sparse/graphs/sample.h"

namespace tessera::kernels {
namespace {

using sparse::Sampler;

// Returns x shifted right as a number without a sign.
at::Tensor shifted(const at::Tensor& x, int64_t bits) {
  return at::bitwise_and(at::bitwise_right_shift(x, bits), (int64_t{1} << (64 - bits)) - 1);
}

// sparse::mixed_bits.
at::Tensor mixed(at::Tensor x) {
  x = at::bitwise_xor(x, shifted(x, 30)) * static_cast<int64_t>(0xBF58476D1CE4E5B9);
  x = at::bitwise_xor(x, shifted(x, 27)) * static_cast<int64_t>(0x94D049BB133111EB);
  return at::bitwise_xor(x, shifted(x, 31));
}

// The edges of each row of a call, inputs 0 to 2.
class Edges {
 public:
  // `sources`: the rows that columns name; `type`: what sums are computed in.
  Edges(const Call& c, int64_t sources, at::ScalarType type)
      : sampling_(sparse::sampling_of(c.op(), c.context().step)), count_(c.in(2).size(0)) {
    begin_ = at::clamp(c.in(0), 0, count_);
    degree_ = at::clamp_min(at::clamp_max(c.in(1), count_) - begin_, 0);
    columns = at::clamp(c.in(2), 0, sources - 1);
    const Interval rows =
        c.box().dims[static_cast<size_t>(op_dims(c.op().annotation.inputs[0])[0])];
    if (sampled()) choose(at::arange(rows.begin, rows.end(), begin_.options()));
    set_scale(c, type);
  }

  int64_t count() const { return count_; }

  // Returns the sum of the edges' rows of `of_edge`, [edges, features], for each row.
  at::Tensor gather(at::Tensor of_edge) const {
    at::Tensor sum = at::zeros({begin_.size(0), of_edge.size(1)}, of_edge.options());
    const auto add = [&](const at::Tensor& at, const at::Tensor& counts) {
      sum = sum + at::where(counts, of_edge.index_select(0, at), zero(of_edge));
    };
    if (sampled()) {
      for (int64_t k = 0; k < slots(); ++k) add(edge(k), k < used_.unsqueeze(-1));
    } else {
      for (int64_t size = 1; size <= count_; size *= 2) {
        add(part(size), has_part(size));
        const int64_t left = of_edge.size(0) - size;
        if (2 * size <= count_)
          of_edge = of_edge.narrow(0, 0, left) + of_edge.narrow(0, size, left);
      }
    }
    return scale_.defined() ? sum * scale_ : sum;
  }

  // Returns for each edge the sum of what rows it is in: the transpose of gather().
  at::Tensor spread(at::Tensor of_row) const {
    if (scale_.defined()) of_row = of_row * scale_;
    at::Tensor sum;
    const auto add = [&](const at::Tensor& at, const at::Tensor& counts) {
      sum = sum.index_add(0, at, at::where(counts, of_row, zero(of_row)));
    };
    if (sampled()) {
      sum = at::zeros({count_, of_row.size(1)}, of_row.options());
      for (int64_t k = 0; k < slots(); ++k) add(edge(k), k < used_.unsqueeze(-1));
      return sum;
    }
    const auto largest = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(count_)));
    sum = at::zeros({count_ - largest + 1, of_row.size(1)}, of_row.options());
    for (int64_t size = largest; size >= 1; size /= 2) {
      if (size < largest)
        sum = at::constant_pad_nd(sum, {0, 0, 0, size}) + at::constant_pad_nd(sum, {0, 0, size, 0});
      add(part(size), has_part(size));
    }
    return sum;
  }

  // Returns how many features of `features` are taken at a time beside operands of so many elements.
  int64_t features_at_once(int64_t features, int64_t elements) const {
    return std::clamp<int64_t>(elements / std::max<int64_t>(count_, 1), 1, features);
  }

  at::Tensor columns;  // [edges]

 private:
  static at::Tensor zero(const at::Tensor& like) { return at::zeros({}, like.options()); }
  bool sampled() const { return sampling_.sampler != Sampler::kNone; }
  int64_t slots() const { return std::min(sampling_.width, count_); }

  // Returns the first edge of the part of each row that has so many edges, a power of 2: behind the
  // smaller parts. Where a row lacks it, any edge.
  at::Tensor part(int64_t size) const {
    return at::clamp_max(begin_ + at::bitwise_and(degree_, size - 1), count_ - size);
  }
  at::Tensor has_part(int64_t size) const {
    return (at::bitwise_and(degree_, size) != 0).unsqueeze(-1);
  }

  // Sets the formula of the slots of each row (sparse::slot_formula).
  void choose(const at::Tensor& row) {
    used_ = at::clamp_max(degree_, sampling_.width);
    const at::Tensor none = at::zeros_like(degree_), degree = at::clamp_min(degree_, 1);
    at::Tensor multiplier = at::ones_like(degree);
    offset_ = none;
    if (sampling_.sampler == Sampler::kStride) {
      constexpr uint64_t kPrimes = 10;
      for (uint64_t i = kPrimes; i-- > 0;) {  // the first that does not divide the degree counts
        const int64_t prime = sparse::stride_prime(sampling_.seed % kPrimes + i, 1);
        multiplier =
            at::where(at::remainder(degree, prime) != 0, at::full_like(degree, prime), multiplier);
      }
    } else if (sampling_.sampler == Sampler::kPermutation) {
      // Those of sparse::permutation_formula(), which keeps them to itself.
      const std::vector<int64_t> multipliers = {2654435789, 3161387893, 3668340023, 4175292203,
                                                2534760611, 3041712731, 3548664853, 4055616973,
                                                2415085441, 2922037583, 3428989699, 3935941843,
                                                2295410287, 2802362401, 3309314527, 3816266659};
      const auto seed =
          static_cast<int64_t>(sparse::mixed_bits(sampling_.seed + 0x9E3779B97F4A7C15));
      const at::Tensor bits = mixed(row * static_cast<int64_t>(0xD1B54A32D192ED03) + seed);
      multiplier = numbers(multipliers, row).index_select(0, at::bitwise_and(bits, 15));
      offset_ = shifted(shifted(bits, 32) * degree, 32);
    }
    const at::Tensor all = used_ == degree_;
    multiplier_ = at::where(all, at::ones_like(degree), at::remainder(multiplier, degree));
    offset_ = at::where(all, none, offset_);
  }

  // Returns the edge of slot k of each row (sparse::slot_position); any where there is no such slot.
  at::Tensor edge(int64_t k) const {
    const at::Tensor degree = at::clamp_min(degree_, 1);
    at::Tensor place = at::remainder(offset_ + multiplier_ * k, degree);
    if (sampling_.sampler == Sampler::kQuadratic) {
      constexpr int64_t kPrime = sparse::kQuadraticPrime;
      const int64_t j = k % kPrime, seed = static_cast<int64_t>(sampling_.seed % kPrime),
                    r = (j * j + seed) % kPrime, folded = r <= kPrime / 2 ? r : kPrime - r;
      place =
          at::where(used_ == degree_, place, at::remainder(at::full_like(degree, folded), degree));
    }
    return at::clamp_max(begin_ + place, count_ - 1);
  }

  // Sets the factor of each row, if it has one.
  void set_scale(const Call& c, at::ScalarType type) {
    const at::Tensor used = (sampled() ? used_ : degree_).to(at::kDouble),
                     one = at::ones({}, used.options());
    if (c.op().text("reduce") == "mean") {
      const at::Tensor among = used + c.number("norm_bias");
      scale_ = at::where(among == 0, at::zeros_like(one), 1 / among);
    } else if (sampled() && c.op().integer("rescale") != 0) {
      scale_ = at::where(used == 0, one, degree_ / used);
    }
    if (scale_.defined()) scale_ = scale_.to(type).unsqueeze(-1);
  }

  sparse::Sampling sampling_;
  int64_t count_;
  at::Tensor begin_, degree_, scale_;      // of each row
  at::Tensor used_, multiplier_, offset_;  // where edges are sampled
};

// Calls f(begin, size) for the features, some at a time.
template <class F>
void each_part(int64_t features, int64_t at_once, const F& f) {
  for (int64_t begin = 0; begin < features; begin += at_once)
    f(begin, std::min(at_once, features - begin));
}

Values spmm(const Call& c) {
  const at::Tensor x = c.in(3);
  const Edges edges(c, x.size(0), x.scalar_type());
  std::vector<at::Tensor> made;
  const int64_t elements = x.numel() + c.in(0).size(0) * x.size(1) + edges.count();
  each_part(x.size(1), edges.features_at_once(x.size(1), elements),
            [&](int64_t begin, int64_t size) {
              at::Tensor of_edge = x.narrow(1, begin, size).index_select(0, edges.columns);
              if (c.has(4)) of_edge = of_edge * c.in(4).unsqueeze(-1);
              made.push_back(edges.gather(of_edge));
            });
  return {at::cat(made, 1)};
}

Values spmm_grad(const Call& c) {
  const at::Tensor dy = c.in(3);
  const int64_t sources = c.output_size(0, 0);
  const Edges edges(c, sources, dy.scalar_type());
  std::vector<at::Tensor> made;
  const int64_t elements = dy.numel() + sources * dy.size(1) + edges.count();
  each_part(dy.size(1), edges.features_at_once(dy.size(1), elements),
            [&](int64_t begin, int64_t size) {
              at::Tensor of_edge = edges.spread(dy.narrow(1, begin, size));
              if (c.has(4)) of_edge = of_edge * c.in(4).unsqueeze(-1);
              made.push_back(
                  at::zeros({sources, size}, dy.options()).index_add(0, edges.columns, of_edge));
            });
  return {at::cat(made, 1)};
}

Values spmm_grad_values(const Call& c) {
  const at::Tensor x = c.in(3), dy = c.in(4);
  const Edges edges(c, x.size(0), dy.scalar_type());
  at::Tensor sum = at::zeros({edges.count()}, dy.options());
  each_part(x.size(1), edges.features_at_once(x.size(1), x.numel() + dy.numel() + edges.count()),
            [&](int64_t begin, int64_t size) {
              const at::Tensor of_edge = edges.spread(dy.narrow(1, begin, size));
              // Rows of x that no edge of these rows names may hold anything.
              const at::Tensor product =
                  of_edge * x.narrow(1, begin, size).index_select(0, edges.columns);
              sum = sum + at::where(of_edge == 0, of_edge, product).sum(-1);
            });
  return {sum};
}

}  // namespace

std::span<const Formula> sparse_formulas() {
  static const std::vector<Formula> formulas = {
      {"spmm", spmm},
      {"spmm_grad", spmm_grad},
      {"spmm_grad_values", spmm_grad_values},
  };
  return formulas;
}

}  // namespace tessera::kernels
