// Chooses which edges of a row a sampled product uses, at most `width` of them. The choice is a
// formula of the row's number and its degree n (its number of edges), so nothing has to be stored,
// and the backward pass finds the same edges.
//
//   sampler      position in the row of the edge of slot k = 0 .. width - 1  chosen edges
//   none         k; there are n slots                                        all
//   bucket       k                                                           the first of the row
//   stride       (k p) mod n, p the prime of the seed                        distinct
//   quadratic    fold((k k + seed) mod 21767) mod n                          some of them twice
//   permutation  (b + a k) mod n, a and b drawn for (seed, row)              distinct, unbiased
//
// Under every sampler, a row with n <= width keeps all its edges in their order. Stride takes the
// prime number (seed mod 10) of ten primes; if that prime divides n, it takes the next that does
// not. fold(r) is r for r up to 10883, else 21767 - r. Since 21767 is a prime of the form 4 m + 3,
// with seed 0 the folded squares of k = 0 .. 10883 are distinct before they are taken modulo n.
//
// Permutation: a is coprime to n, so the slots are distinct. b is uniform in [0, n), so every edge
// is in the sample with probability exactly width / n. So the expectation of the sample's mean is
// the row's mean, and the expectation of the sample's sum times n / width is the row's sum
// (`rescale`). If n were prime and a uniform among all numbers coprime to n, every pair of edges
// would be sampled as often as in draws without replacement, and the variance of the mean would be
// that of such draws,
//   sigma^2 / width (n - width) / (n - 1).
// In fact a is one of 16 primes above 2^31. They are coprime to every degree, because degrees are
// below 2^31. permuted_positions() finds the slots in turn by additions, without divisions. The
// other samplers keep the same edges in every epoch and are biased;
// docs/strategies/graph-partitions.md compares them.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/sparse/graphs/csr.h"
#include "tessera/sparse/graphs/slot_formula.h"

namespace tessera::sparse {

std::string_view sampler_name(Sampler sampler);  // "none", "bucket", ...
Result<Sampler> parse_sampler(std::string_view name);

struct Sampling {
  Sampler sampler = Sampler::kNone;
  int64_t width = 0;  // the most edges of a row that are used; above 0 unless the sampler is kNone
  uint64_t seed = 0;
  friend bool operator==(const Sampling&, const Sampling&) = default;
};
// Returns an error if there is a sampler but no width above 0.
Status check(const Sampling& sampling);

// Returns the number of slots of a row of `degree` edges.
inline int64_t sampled_count(const Sampling& sampling, int64_t degree) {
  return sampling.sampler == Sampler::kNone || degree < sampling.width ? degree : sampling.width;
}
// Writes the position in the row of each slot's edge, each in [0, degree); degree < 2^31. `row`
// must be the row's number in the whole graph, even if a rank holds only a part of the graph.
void sampled_positions(const Sampling& sampling, int64_t row, int64_t degree, int32_t* positions);

// The numbers a (multiplier) and b (offset) of the formula of a row. permuted_positions() evaluates
// the formula by additions, so that no slot needs a division.
struct Permutation {
  uint32_t multiplier = 1, offset = 0;  // both below the degree
};
void permuted_positions(const Permutation& permutation, int64_t degree, int64_t count,
                        int32_t* positions);

// Returns the number of slots of all rows together.
int64_t sampled_edges(const CsrGraph& graph, const Sampling& sampling);
// Returns the number of slots over the number of edges; 1 if there are no edges.
double coverage(const CsrGraph& graph, const Sampling& sampling);

}  // namespace tessera::sparse
