// Which edges of a row a sampled product uses: at most `width` of them, chosen by a formula of the
// row's number and its degree n, so that nothing is stored and the way back finds the same edges.
//
//   sampler      position of slot k = 0 .. width - 1                       edges
//   none         k, all n of them                                          all
//   bucket       k                                                         the first of the row
//   stride       (k p) mod n, p the prime of the seed                      distinct
//   quadratic    fold((k k + seed) mod 21767) mod n                        some of them twice
//   permutation  (b + a k) mod n, a and b drawn for (seed, row)            distinct, unbiased
//
// A row of n <= width edges keeps all of them in their order, under every sampler. Stride takes
// from ten primes that of number seed mod 10, or the next one that does not divide n. fold(r) is r up
// to 10883 and 21767 - r above; 21767 is a prime, 3 modulo 4, so with seed 0 the folded squares of
// k < 10884 are distinct before they are taken modulo n.
//
// Permutation: a is coprime to n, so the slots are distinct; b is uniform in [0, n), so that every
// edge is in the sample with probability width / n exactly: the mean over the sample has the row's
// mean as its expectation, and the sum times n / width has the row's sum (`rescale`). If a were
// uniform among all numbers coprime to a prime n, every pair would be there as often as in draws
// without replacement, and the variance of the mean would be theirs,
//   sigma^2 / width (n - width) / (n - 1).
// a is one of 16 primes above 2^31, which are coprime to every degree; nothing is divided for each slot.
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
// Error: a sampler without a width.
Status check(const Sampling& sampling);

// How many slots a row of `degree` edges has.
inline int64_t sampled_count(const Sampling& sampling, int64_t degree) {
  return sampling.sampler == Sampler::kNone || degree < sampling.width ? degree : sampling.width;
}
// The positions of the slots, each in [0, degree), degree < 2^31. `row` is the row's number in the
// whole graph, also where a rank holds a part of it.
void sampled_positions(const Sampling& sampling, int64_t row, int64_t degree, int32_t* positions);

// The numbers that the sampler `permutation` uses in a row, and its formula.
struct Permutation {
  uint32_t multiplier = 1, offset = 0;  // both below the degree
};
void permuted_positions(const Permutation& permutation, int64_t degree, int64_t count,
                        int32_t* positions);

// Slots of all rows, and their share of the edges.
int64_t sampled_edges(const CsrGraph& graph, const Sampling& sampling);
double coverage(const CsrGraph& graph, const Sampling& sampling);

}  // namespace tessera::sparse
