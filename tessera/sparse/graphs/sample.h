// Chooses the edges of a row that a sampled product uses: at most `width` edges, by a formula of
// the row's number and its degree n, so nothing is stored and the backward pass finds the same
// edges.
//
//   sampler      position of slot k = 0 .. width - 1                       edges
//   none         k, all n of them                                          all
//   bucket       k                                                         the first of the row
//   stride       (k p) mod n, p the prime of the seed                      distinct
//   quadratic    fold((k k + seed) mod 21767) mod n                        some of them twice
//   permutation  (b + a k) mod n, a and b drawn for (seed, row)            distinct, unbiased
//
// A row of n <= width edges keeps all of them in their order, under every sampler. Stride takes the
// prime of number seed mod 10 of ten primes, or the next prime that does not divide n. fold(r) is r
// up to 10883 and 21767 - r above; 21767 is a prime, 3 modulo 4, so with seed 0 the folded squares
// of k < 10884 are distinct before they are taken modulo n.
//
// Permutation: a is coprime to n, so the slots are distinct. b is uniform in [0, n), so every edge
// is in the sample with probability width / n exactly: the expectation of the sample's mean is the
// row's mean, and that of the sum times n / width is the row's sum (`rescale`). If a were uniform
// among all numbers coprime to a prime n, every pair would be sampled as often as in draws without
// replacement, and the variance of the mean would be that of such draws,
//   sigma^2 / width (n - width) / (n - 1).
// a is one of 16 primes above 2^31, which are coprime to every degree; no slot needs a division.
// Other samplers keep the same edges in every epoch and are biased;
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
  int64_t width = 0;  // edges of a row at most; above 0 unless the sampler is kNone
  uint64_t seed = 0;
  friend bool operator==(const Sampling&, const Sampling&) = default;
};
// Returns an error if a sampler has no width.
Status check(const Sampling& sampling);

// Returns the number of slots of a row of `degree` edges.
inline int64_t sampled_count(const Sampling& sampling, int64_t degree) {
  return sampling.sampler == Sampler::kNone || degree < sampling.width ? degree : sampling.width;
}
// Writes the positions of the slots, each in [0, degree), degree < 2^31. `row` is the row's number
// in the whole graph, even where a rank holds a part of it.
void sampled_positions(const Sampling& sampling, int64_t row, int64_t degree, int32_t* positions);

// The numbers that the sampler `permutation` uses in a row, and its formula.
struct Permutation {
  uint32_t multiplier = 1, offset = 0;  // both below the degree
};
void permuted_positions(const Permutation& permutation, int64_t degree, int64_t count,
                        int32_t* positions);

// Returns the number of slots of all rows; coverage() returns their share of the edges.
int64_t sampled_edges(const CsrGraph& graph, const Sampling& sampling);
double coverage(const CsrGraph& graph, const Sampling& sampling);

}  // namespace tessera::sparse
