#include "tessera/predict/scores.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "tessera/base/check.h"
#include "tessera/base/statistics.h"

namespace tessera {
namespace {

constexpr size_t kGroup = 4;

std::vector<double> magnitudes(std::vector<double> values) {
  for (double& value : values) value = std::abs(value);
  return values;
}

struct PredictedAndMeasured {
  std::vector<double> predicted, measured;
};

// For each row of a source that has an uncertainty: 1 if the error is at most the uncertainty, else
// 0; and the same with twice the uncertainty.
struct Spread {
  std::vector<double> within, within_twice;
};

void score_groups(const std::map<std::string, PredictedAndMeasured>& groups, Scores& scores) {
  std::vector<double> taus, regrets;
  for (const auto& [name, pairs] : groups) {
    if (pairs.measured.size() < kGroup) continue;
    taus.push_back(kendall_tau(pairs.predicted, pairs.measured));
    const auto chosen =
        std::min_element(pairs.predicted.begin(), pairs.predicted.end()) - pairs.predicted.begin();
    const double best = *std::min_element(pairs.measured.begin(), pairs.measured.end());
    regrets.push_back(pairs.measured[static_cast<size_t>(chosen)] / best - 1);
  }
  scores.groups = static_cast<int64_t>(taus.size());
  scores.tau = mean(taus);
  scores.regret = mean(regrets);
  for (const double regret : regrets) scores.worst_regret = std::max(scores.worst_regret, regret);
}

bool says_uncertainty(const ScoredRow& row) {
  return row.predicted > 0 && row.measured > 0 && row.uncertainty > 0;
}

double error_over_uncertainty(const ScoredRow& row) {
  return std::abs(row.predicted / row.measured - 1) / row.uncertainty;
}

}  // namespace

double uncertainty_factor(const std::vector<ScoredRow>& rows, double share) {
  std::map<std::string, std::vector<double>> by_source;
  for (const ScoredRow& row : rows) {
    if (says_uncertainty(row)) by_source[row.source].push_back(error_over_uncertainty(row));
  }
  if (by_source.empty()) return 1;
  std::vector<std::pair<double, double>> weighted;  // (factor that a row needs, weight of the row)
  for (const auto& [source, factors] : by_source) {
    for (const double factor : factors) {
      weighted.emplace_back(factor, 1 / static_cast<double>(factors.size() * by_source.size()));
    }
  }
  std::sort(weighted.begin(), weighted.end());
  double sum = 0;
  for (const auto& [factor, weight] : weighted) {
    sum += weight;
    if (sum >= share - 1e-12) return factor;
  }
  return weighted.back().first;
}

double cross_validated_within(const std::vector<ScoredRow>& rows, double share) {
  std::map<std::string, std::vector<const ScoredRow*>> by_source;
  for (const ScoredRow& row : rows) {
    if (says_uncertainty(row)) by_source[row.source].push_back(&row);
  }
  std::vector<double> within;
  for (const auto& [source, own] : by_source) {
    std::vector<ScoredRow> others;
    std::copy_if(rows.begin(), rows.end(), std::back_inserter(others),
                 [&name = source](const ScoredRow& row) { return row.source != name; });
    const double factor = uncertainty_factor(others, share);
    const auto count = std::count_if(own.begin(), own.end(), [&](const ScoredRow* row) {
      return error_over_uncertainty(*row) <= factor;
    });
    within.push_back(static_cast<double>(count) / static_cast<double>(own.size()));
  }
  return mean(within);
}

double kendall_tau(const std::vector<double>& a, const std::vector<double>& b) {
  TESSERA_CHECK(a.size() == b.size(), "lists of {} and {} values", a.size(), b.size());
  const auto sign = [](double value) { return value > 0 ? 1 : value < 0 ? -1 : 0; };
  int64_t agreeing = 0, pairs = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      agreeing += sign(a[i] - a[j]) * sign(b[i] - b[j]);
      ++pairs;
    }
  }
  return pairs == 0 ? 0 : static_cast<double>(agreeing) / static_cast<double>(pairs);
}

Scores score(const std::vector<ScoredRow>& rows, const std::string& qualities) {
  Scores scores;
  std::map<std::string, std::vector<double>> errors;
  std::map<std::string, PredictedAndMeasured> groups;
  std::vector<double> memory;
  std::map<std::string, Spread> spreads;
  for (const ScoredRow& row : rows) {
    if (qualities.find(row.quality) == std::string::npos) continue;
    if (row.predicted_memory > 0 && row.measured_memory > 0) {
      memory.push_back(row.predicted_memory / row.measured_memory - 1);
    }
    if (row.predicted <= 0 || row.measured <= 0) continue;
    errors[row.source].push_back(row.predicted / row.measured - 1);
    if (row.uncertainty > 0) {
      const double size = std::abs(errors[row.source].back()) / row.uncertainty;
      spreads[row.source].within.push_back(size <= 1 ? 1 : 0);
      spreads[row.source].within_twice.push_back(size <= 2 ? 1 : 0);
    }
    groups[row.group].predicted.push_back(row.predicted);
    groups[row.group].measured.push_back(row.measured);
  }
  std::vector<double> of_sources;
  for (const auto& [source, of_source] : errors) {
    const std::vector<double> sizes = magnitudes(of_source);
    scores.by_source[source] = {static_cast<int64_t>(of_source.size()), mean(sizes), median(sizes),
                                mean(of_source)};
    of_sources.push_back(mean(sizes));
  }
  scores.macro = mean(of_sources);
  for (const auto& [source, spread] : spreads) {
    const auto sources = static_cast<double>(spreads.size());
    scores.within += mean(spread.within) / sources;
    scores.within_twice += mean(spread.within_twice) / sources;
  }
  score_groups(groups, scores);
  scores.memory_rows = static_cast<int64_t>(memory.size());
  scores.memory_mape = mean(magnitudes(memory));
  scores.memory_bias = mean(memory);
  return scores;
}

}  // namespace tessera
