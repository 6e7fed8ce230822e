// Bounds of Ranking that save prices: earlier prices show that some choices cannot become the
// answer, so these are not priced (docs/theory/search.md section 12).
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "tessera/base/text.h"
#include "tessera/search/constants.h"
#include "tessera/search/rank/ranking.h"

namespace tessera {

std::string Ranking::axes_key(const std::vector<ChoiceAxis>& axes, int64_t sequences) {
  std::string out = std::to_string(sequences);
  for (const ChoiceAxis& axis : axes)
    out += fmt::format(" {}[{}]", axis.size, join(axis.dims, ","));
  return out;
}

void Ranking::note_uncut(int64_t sequences, double seconds) {
  // No bound, because nodes of other kinds may be faster.
  if (estimator_.kinds().count() > 1) return;
  uncut_s_[sequences] = seconds;
}

double Ranking::least_work_s(double passes_s, int64_t inner, int64_t sequences) const {
  const auto micro_batches = static_cast<double>(question_.batch) / static_cast<double>(sequences);
  return passes_s * micro_batches * static_cast<double>(inner);
}

bool Ranking::may_be_best(double step_s, int64_t devices) const {
  const Objective& objective = question_.objective;
  return !best_ || objective.merit({step_s / kFormulaErrs, 0,
                                    objective.used(*question_.cluster, devices)}) <= *best_;
}

bool Ranking::may_be_best_on_some(double device_s) const {
  return std::ranges::any_of(device_counts_, [&](const auto& count) {
    return may_be_best(device_s / static_cast<double>(count.first), count.first);
  });
}

Merit Ranking::at_no_memory(const PlanCandidate& candidate) const {
  PlanFacts facts = expected(question_, candidate.choice, candidate.estimate);
  facts.memory_bytes = 0;
  return question_.objective.merit(facts);
}

bool Ranking::may_win(int64_t inner, int64_t sequences) const {
  if (is_small_ || inner == 1 || !best_ || uncut_s_.empty()) return true;
  double least = std::numeric_limits<double>::infinity();
  for (const auto& [count, passes_s] : uncut_s_) {
    least = std::min(least, least_work_s(passes_s, 1, count));
    if (count >= sequences) break;
  }
  return may_be_best_on_some((1 - kLittle) * least);
}

bool Ranking::may_win_with_more(int64_t inner, int64_t fewer, double fewer_s, int64_t more,
                                double more_s) const {
  if (is_small_ || inner == 1 || !best_) return true;
  const double least_s = std::min(
      more_s, (more_s - fewer_s) * static_cast<double>(more) / static_cast<double>(more - fewer));
  return may_be_best_on_some(least_work_s(least_s, inner, more));
}

bool Ranking::sums_slow_passes(int64_t inner, const UnitPrices& prices) const {
  const int64_t replicas = std::min(question_.cluster->devices() / inner, question_.batch);
  if (replicas < 2) return false;
  double gradient_bytes = 0, backward_s = 0, held = activations_bytes(prices, counts_);
  for (size_t u = 0; u < counts_.size(); ++u) {
    const UnitPrice& unit = prices.units[u];
    const auto times = static_cast<double>(counts_[u]);
    gradient_bytes += times * unit.gradient_bytes;
    backward_s += times * unit.backward_s;
    held += times * (unit.copy_bytes > 0 ? unit.copy_bytes : unit.parameter_bytes);
  }
  if (limit_ > 0 && held > limit_) return false;
  const auto bytes = static_cast<int64_t>(gradient_bytes);
  return estimator_.replica_costs().seconds_to_sum(replicas, inner, bytes) > kLittle * backward_s;
}

bool Ranking::may_win_smaller(const std::vector<ChoiceAxis>& axes, int64_t sequences) const {
  const auto known = at_no_memory_.find(axes_key(axes, sequences));
  return known != at_no_memory_.end() && std::ranges::any_of(known->second, [&](const auto& of) {
           return of.second && is_best(*of.second);
         });
}

}  // namespace tessera
