#include "tessera/predict/floor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tessera/base/statistics.h"
#include "tessera/base/text.h"

namespace tessera {
namespace {

constexpr size_t kLeastGroup = 4;

using Rows = std::vector<const ScoredRow*>;

bool counts(const ScoredRow& row) { return row.predicted > 0 && row.measured > 0; }

std::map<std::string, Rows> by(const std::vector<ScoredRow>& rows, std::string ScoredRow::*key) {
  std::map<std::string, Rows> out;
  for (const ScoredRow& row : rows) {
    if (counts(row)) out[row.*key].push_back(&row);
  }
  return out;
}

// Returns the least sum of |p / measured - 1| over all values of p. The sum is convex and piecewise
// linear in p, so it is least at one of the measured values.
double least_error(const std::vector<double>& measured) {
  double least = std::numeric_limits<double>::infinity();
  for (const double p : measured) {
    double sum = 0;
    for (const double value : measured) sum += std::abs(p / value - 1);
    least = std::min(least, sum);
  }
  return least;
}

SourceFloor floor_of_source(const Rows& rows) {
  std::map<std::string, std::vector<double>> equal;
  for (const ScoredRow* row : rows) equal[row->inputs].push_back(row->measured);
  SourceFloor out;
  double sum = 0;
  for (const auto& [inputs, measured] : equal) {
    if (measured.size() > 1) out.repeated += static_cast<int64_t>(measured.size());
    sum += least_error(measured);
  }
  out.mape = sum / static_cast<double>(rows.size());
  return out;
}

// Numbers of pairs of rows of a group. `orderable`: pairs with different inputs and different
// measured values. `agreeing`: the orderable pairs that are predicted in the right order minus
// those in the wrong order.
struct PairCounts {
  double all = 0, orderable = 0, agreeing = 0;
};
PairCounts pairs_of(const Rows& group) {
  PairCounts out;
  for (size_t i = 0; i < group.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      const ScoredRow &a = *group[i], &b = *group[j];
      ++out.all;
      if (a.inputs == b.inputs || a.measured == b.measured) continue;
      ++out.orderable;
      const double sign = (a.predicted - b.predicted) * (a.measured - b.measured);
      out.agreeing += sign > 0 ? 1 : sign < 0 ? -1 : 0;
    }
  }
  return out;
}

template <typename Share>
double mean_of_groups(const std::vector<ScoredRow>& rows, const Share& share) {
  double sum = 0;
  int64_t groups = 0;
  for (const auto& [name, group] : by(rows, &ScoredRow::group)) {
    if (group.size() < kLeastGroup) continue;
    const PairCounts pairs = pairs_of(group);
    if (pairs.orderable == 0) continue;
    sum += share(pairs);
    ++groups;
  }
  return groups == 0 ? 0 : sum / static_cast<double>(groups);
}

double least_regret(const std::vector<ScoredRow>& rows) {
  double sum = 0;
  int64_t groups = 0;
  for (const auto& [name, group] : by(rows, &ScoredRow::group)) {
    if (group.size() < kLeastGroup) continue;
    std::map<std::string, std::vector<double>> equal;
    double best = std::numeric_limits<double>::infinity(), chosen = best;
    for (const ScoredRow* row : group) {
      equal[row->inputs].push_back(row->measured);
      best = std::min(best, row->measured);
    }
    for (const auto& [inputs, measured] : equal) chosen = std::min(chosen, mean(measured));
    sum += chosen / best - 1;
    ++groups;
  }
  return groups == 0 ? 0 : sum / static_cast<double>(groups);
}

}  // namespace

std::string inputs_of(const Row& row) {
  std::string out = join({row.source, row.model, row.gpu, row.recompute.text, row.dtype.text}, "|");
  out += row.params ? fmt::format("|{}", *row.params) : "|";
  for (const auto& size : {row.layers, row.hidden, row.heads, row.kv_heads, row.ffn, row.seq,
                           row.vocab, row.gpus, row.gpus_a_node, row.tp, row.pp, row.vpp, row.dp,
                           row.cp, row.ep, row.zero, row.microbatch, row.global_batch, row.lora}) {
    out += size ? fmt::format("|{}", *size) : "|";
  }
  // Notes count only for what they say of low-rank factors.
  const StatedLowRank said = low_rank_in(row.notes);
  if (said.trains) out += fmt::format("|{} {}", said.rank.value_or(0), said.narrow_base);
  return out;
}

std::string block_of(const Row& row) {
  std::string out = join({row.source, row.gpu, row.recompute.text, row.dtype.text}, "|");
  for (const auto& size : {row.hidden, row.heads, row.kv_heads, row.ffn, row.seq, row.vocab, row.tp,
                           row.cp, row.ep, row.microbatch}) {
    out += size ? fmt::format("|{}", *size) : "|";
  }
  return out;
}

// Tries as factor f of a block the factor that is exact for one of its rows, for each row. The sum
// of |f predicted / measured - 1| is convex and piecewise linear in f, so it is least at one of
// these factors.
std::vector<ScoredRow> with_block_factors(std::vector<ScoredRow> rows) {
  std::map<std::string, std::vector<ScoredRow*>> blocks;
  for (ScoredRow& row : rows) {
    if (counts(row)) blocks[row.block].push_back(&row);
  }
  for (const auto& [name, block] : blocks) {
    double best = 1, least = std::numeric_limits<double>::infinity();
    for (const ScoredRow* met : block) {
      const double factor = met->measured / met->predicted;
      double sum = 0;
      for (const ScoredRow* row : block)
        sum += std::abs(factor * row->predicted / row->measured - 1);
      if (sum < least) {
        least = sum;
        best = factor;
      }
    }
    for (ScoredRow* row : block) row->predicted *= best;
  }
  return rows;
}

Floor floor_of(const std::vector<ScoredRow>& rows) {
  Floor out;
  for (const auto& [source, of_source] : by(rows, &ScoredRow::source)) {
    out.by_source[source] = floor_of_source(of_source);
    out.macro += out.by_source[source].mape;
  }
  if (!out.by_source.empty()) out.macro /= static_cast<double>(out.by_source.size());
  out.regret = least_regret(rows);
  out.tau =
      mean_of_groups(rows, [](const PairCounts& pairs) { return pairs.orderable / pairs.all; });
  return out;
}

double tau_of_distinct(const std::vector<ScoredRow>& rows) {
  return mean_of_groups(rows,
                        [](const PairCounts& pairs) { return pairs.agreeing / pairs.orderable; });
}

}  // namespace tessera
