#include "tessera/sparse/graphs/sample.h"

#include <fmt/format.h>

#include <array>

#include "tessera/base/one_line.h"
#include "tessera/base/text.h"

namespace tessera::sparse {
namespace {

constexpr std::array<std::string_view, 5> kNames = {"none", "bucket", "stride", "quadratic",
                                                    "permutation"};

constexpr std::array<uint32_t, 10> kStrides = {577,  769,  983,  1193, 1429,
                                               1619, 1871, 2089, 2339, 2579};
constexpr uint32_t kQuadraticPrime = 21767;

// Primes above 2^31, spread over [2^31, 2^32): coprime to every degree, of any remainder.
constexpr std::array<uint32_t, 16> kMultipliers = {
    2654435789, 3161387893, 3668340023, 4175292203, 2534760611, 3041712731, 3548664853, 4055616973,
    2415085441, 2922037583, 3428989699, 3935941843, 2295410287, 2802362401, 3309314527, 3816266659};

// The finaliser of SplitMix64: every bit of the result depends on every bit of x.
uint64_t mixed(uint64_t x) {
  x ^= x >> 30;
  x *= 0xBF58476D1CE4E5B9;
  x ^= x >> 27;
  x *= 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

uint32_t stride_of(uint64_t seed, uint32_t degree) {
  for (uint64_t i = seed % kStrides.size();; i = (i + 1) % kStrides.size()) {
    // The product of the ten exceeds every degree, so one of them does not divide it.
    if (degree % kStrides[i] != 0) return kStrides[i];
  }
}

}  // namespace

std::string_view sampler_name(Sampler sampler) { return kNames[static_cast<size_t>(sampler)]; }

Result<Sampler> parse_sampler(std::string_view name) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<Sampler>(i);
  }
  return invalid_input(fmt::format(
      "expected a sampler ({}), found '{}'",
      join(std::vector<std::string>(kNames.begin(), kNames.end()), ", "), short_line(name, 60)));
}

Status check(const Sampling& sampling) {
  if (sampling.sampler == Sampler::kNone || sampling.width > 0) return {};
  return invalid_input(fmt::format("expected a width above 0 for the sampler {}, found {}",
                                   sampler_name(sampling.sampler), sampling.width));
}

Permutation drawn_permutation(uint64_t seed, int64_t row, int64_t degree) {
  const uint64_t n = static_cast<uint64_t>(degree);
  const uint64_t bits =
      mixed(mixed(seed + 0x9E3779B97F4A7C15) + static_cast<uint64_t>(row) * 0xD1B54A32D192ED03);
  // The low bits choose the multiplier, the high ones the offset.
  return {static_cast<uint32_t>(kMultipliers[bits % kMultipliers.size()] % n),
          static_cast<uint32_t>(((bits >> 32) * n) >> 32)};
}

void permuted_positions(const Permutation& permutation, int64_t degree, int64_t count,
                        int32_t* positions) {
  const uint32_t n = static_cast<uint32_t>(degree);
  uint32_t at = permutation.offset;
  for (int64_t k = 0; k < count; ++k) {
    positions[k] = static_cast<int32_t>(at);
    at += permutation.multiplier;  // below 2 n <= 2^32
    if (at >= n) at -= n;
  }
}

void sampled_positions(const Sampling& sampling, int64_t row, int64_t degree, int32_t* positions) {
  const int64_t count = sampled_count(sampling, degree);
  if (count == degree || sampling.sampler == Sampler::kBucket) {
    for (int64_t k = 0; k < count; ++k) positions[k] = static_cast<int32_t>(k);
    return;
  }
  const uint32_t n = static_cast<uint32_t>(degree);
  switch (sampling.sampler) {
    case Sampler::kNone:
    case Sampler::kBucket: return;
    case Sampler::kStride:
      return permuted_positions({stride_of(sampling.seed, n) % n, 0}, degree, count, positions);
    case Sampler::kPermutation:
      return permuted_positions(drawn_permutation(sampling.seed, row, degree), degree, count,
                                positions);
    case Sampler::kQuadratic: {
      const uint64_t shift = sampling.seed % kQuadraticPrime;
      for (int64_t k = 0; k < count; ++k) {
        const uint64_t j = static_cast<uint64_t>(k) % kQuadraticPrime;
        const uint32_t r = static_cast<uint32_t>((j * j + shift) % kQuadraticPrime);
        positions[k] =
            static_cast<int32_t>((r <= kQuadraticPrime / 2 ? r : kQuadraticPrime - r) % n);
      }
      return;
    }
  }
}

CsrGraph sampled_csr(const CsrGraph& graph, const Sampling& sampling) {
  CsrGraph out;
  out.column_count = graph.column_count;
  std::vector<int32_t> positions;
  for (int64_t row = 0; row < graph.rows(); ++row) {
    const int64_t degree = graph.degree(row);
    positions.resize(static_cast<size_t>(sampled_count(sampling, degree)));
    sampled_positions(sampling, row, degree, positions.data());
    for (const int32_t position : positions) {
      const int64_t edge = graph.offsets[static_cast<size_t>(row)] + position;
      out.columns.push_back(graph.columns[static_cast<size_t>(edge)]);
      if (!graph.values.empty()) out.values.push_back(graph.value(edge));
    }
    out.offsets.push_back(out.edges());
  }
  return out;
}

int64_t sampled_edges(const CsrGraph& graph, const Sampling& sampling) {
  int64_t slots = 0;
  for (int64_t row = 0; row < graph.rows(); ++row)
    slots += sampled_count(sampling, graph.degree(row));
  return slots;
}

double coverage(const CsrGraph& graph, const Sampling& sampling) {
  if (graph.edges() == 0) return 1;
  return static_cast<double>(sampled_edges(graph, sampling)) / static_cast<double>(graph.edges());
}

}  // namespace tessera::sparse
