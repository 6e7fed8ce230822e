#include "tessera/sparse/graphs/sample.h"

#include <fmt/format.h>

#include <array>

#include "tessera/base/one_line.h"
#include "tessera/base/text.h"

namespace tessera::sparse {
namespace {

constexpr std::array<std::string_view, 5> kNames = {"none", "bucket", "stride", "quadratic",
                                                    "permutation"};

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
  const uint32_t n = static_cast<uint32_t>(degree);
  const SlotFormula formula =
      slot_formula(sampling.sampler, sampling.seed, row, n, static_cast<uint32_t>(count));
  if (!formula.quadratic) {  // by additions, so that no slot needs a division
    permuted_positions({formula.multiplier, formula.offset}, degree, count, positions);
    return;
  }
  for (int64_t k = 0; k < count; ++k) {
    positions[k] = static_cast<int32_t>(slot_position(formula, n, static_cast<uint32_t>(k)));
  }
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
