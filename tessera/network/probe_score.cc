#include "tessera/network/probe_score.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "tessera/base/statistics.h"

namespace tessera::network {
namespace {

constexpr double kLeastNoise = 0.05,
                 kMostNoise = 0.15;     // relative error of a rate, and of a sum of rates
constexpr double kShareNoise = 0.7;     // of the part that one of several flows gets
constexpr double kDisturbed = 0.02;     // of the rounds: other work on the hosts slows all rates
constexpr double kNear = 0.85;          // of the highest: rates that reach a limit
constexpr double kHeldDown = 1.15;      // what the cards could do, over what they did
constexpr double kUpper = 0.7;          // of the highest: sums of a way up that may have been full
constexpr double kFreedom = 3;          // degrees of freedom of Student's t
constexpr double kLeastFarther = 0.3;   // of log latency, across racks
constexpr double kLatencyNoise = 0.05;  // least relative spread of latencies

// Returns the log density of Student's t, up to a constant.
double log_density(double error, double scale) {
  const double x = error / scale;
  return -std::log(scale) - (kFreedom + 1) / 2 * std::log1p(x * x / kFreedom);
}

// Returns the median of the values that are near the highest one.
double top(const std::vector<double>& values) {
  if (values.empty()) return 0;
  const double highest = *std::max_element(values.begin(), values.end());
  std::vector<double> near;
  for (const double value : values) {
    if (value >= kNear * highest) near.push_back(value);
  }
  return median(near);
}

// Returns the values that are near the middle of the upper ones: single values that are too high do
// not count, nor do those that something else held down.
std::vector<double> upper_middle(const std::vector<double>& values) {
  if (values.empty()) return {};
  const double highest = *std::max_element(values.begin(), values.end());
  std::vector<double> upper, near;
  for (const double value : values) {
    if (value >= kUpper * highest) upper.push_back(value);
  }
  const double middle = median(upper);
  for (const double value : values) {
    if (std::abs(value / middle - 1) <= 1 - kNear) near.push_back(value);
  }
  return near;
}

// The rates that the cards of a round's pairs can reach, and the pairs in this order.
struct Caps {
  std::vector<double> rates;
  std::vector<size_t> order;
};
Caps caps_of(const ProbeRound& round, const std::vector<double>& cards) {
  Caps out;
  for (const ProbeFlow& flow : round) {
    out.order.push_back(out.rates.size());
    out.rates.push_back(
        std::min(cards[static_cast<size_t>(flow.a)], cards[static_cast<size_t>(flow.b)]));
  }
  std::ranges::sort(out.order, {}, [&](size_t i) { return out.rates[i]; });
  return out;
}

// Raises the rates of all flows together, and holds a flow when its cards or a way up are full. One
// object is used for many rounds, so that it allocates once.
class Filler {
 public:
  std::vector<double> rates;
  std::vector<int64_t> limit;  // rack whose way up limits the flow; kOnCore: its cards

  void fill(const ProbeRound& round, const std::vector<double>& caps,
            const std::vector<size_t>& order, const std::vector<int64_t>& racks,
            const std::vector<double>& uplinks) {
    rates.assign(round.size(), 0);
    limit.assign(round.size(), kOnCore);
    left_ = uplinks;
    open_.assign(uplinks.size(), 0);
    ways_.clear();
    for (const ProbeFlow& flow : round) {
      const int64_t a = racks[static_cast<size_t>(flow.a)], b = racks[static_cast<size_t>(flow.b)];
      ways_.push_back(a == b ? std::pair(kOnCore, kOnCore) : std::pair(a, b));
      for (const int64_t g : {ways_.back().first, ways_.back().second}) {
        if (g != kOnCore) ++open_[static_cast<size_t>(g)];
      }
    }
    rising_ = order;
    size_t next = 0;  // those before it are held
    while (next < rising_.size()) {
      double level = kUnlimited;
      int64_t full = kOnCore;
      for (size_t g = 0; g < left_.size(); ++g) {
        if (open_[g] == 0) continue;
        const double here = std::max(0.0, left_[g]) / static_cast<double>(open_[g]);
        if (here < level) {
          level = here;
          full = static_cast<int64_t>(g);
        }
      }
      if (const double cap = caps[rising_[next]]; cap <= level) {
        hold(rising_[next++], cap, kOnCore);
        continue;
      }
      size_t kept = next;
      for (size_t k = next; k < rising_.size(); ++k) {
        const size_t i = rising_[k];
        if (ways_[i].first == full || ways_[i].second == full) {
          hold(i, level, full);
        } else {
          rising_[kept++] = i;
        }
      }
      rising_.resize(kept);
    }
  }

 private:
  void hold(size_t i, double rate, int64_t by) {
    rates[i] = rate;
    limit[i] = by;
    for (const int64_t g : {ways_[i].first, ways_[i].second}) {
      if (g == kOnCore) continue;
      left_[static_cast<size_t>(g)] -= rate;
      --open_[static_cast<size_t>(g)];
    }
  }

  std::vector<double> left_;
  std::vector<int64_t> open_;  // flows of each rack that still rise
  std::vector<std::pair<int64_t, int64_t>> ways_;
  std::vector<size_t> rising_;
};

}  // namespace

std::vector<double> fair_round(const ProbeRound& round, const std::vector<int64_t>& racks,
                               const std::vector<double>& cards,
                               const std::vector<double>& uplinks) {
  Filler filler;
  const Caps caps = caps_of(round, cards);
  filler.fill(round, caps.rates, caps.order, racks, uplinks);
  return std::move(filler.rates);
}

std::vector<double> card_rates(const ProbeMeasurements& measured) {
  std::vector<std::vector<double>> seen(static_cast<size_t>(measured.machines));
  for (const ProbeRound& round : measured.rounds) {
    for (const ProbeFlow& flow : round) {
      seen[static_cast<size_t>(flow.a)].push_back(flow.rate);
      seen[static_cast<size_t>(flow.b)].push_back(flow.rate);
    }
  }
  std::vector<double> out;
  for (const std::vector<double>& rates : seen) out.push_back(top(rates));
  return out;
}

Scorer::Scorer(const ProbeMeasurements& measured)
    : measured_(measured), cards_(card_rates(measured)) {
  for (const ProbeRound& round : measured.rounds) {
    flows_ += round.size();
    Caps caps = caps_of(round, cards_);
    caps_.push_back(std::move(caps.rates));
    orders_.push_back(std::move(caps.order));
  }
  // Noise is what rates near those of the cards differ from them.
  std::vector<double> errors;
  for (size_t r = 0; r < caps_.size(); ++r) {
    for (size_t i = 0; i < caps_[r].size(); ++i) {
      const double part = measured.rounds[r][i].rate / caps_[r][i];
      if (part >= kNear) errors.push_back(std::abs(part - 1));
    }
  }
  noise_ = std::clamp(2 * median(errors), kLeastNoise, kMostNoise);
  // A machine that is late to answer is late to all, its neighbours among them, which is no sign of a
  // rack. So all its pairs are taken as faster by the time that its nearest pair is late.
  const int64_t n = measured.machines;
  if (measured.latency_s.empty()) return;
  std::vector<double> nearest;
  for (int64_t i = 0; i < n; ++i) {
    double least = kUnlimited;
    for (int64_t j = 0; j < n; ++j) {
      if (i != j && measured.latency(i, j) > 0)
        least = std::min(least, std::log(measured.latency(i, j)));
    }
    nearest.push_back(least);
  }
  const double usual = median(nearest);
  const auto late = [&](int64_t i) {
    return std::max(0.0, nearest[static_cast<size_t>(i)] - usual);
  };
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = i + 1; j < n; ++j) {
      const double value = measured.latency(i, j);
      log_latency_.push_back(value > 0 ? std::log(value) - late(i) - late(j) : std::nan(""));
    }
  }
}

std::vector<double> Scorer::errors(const std::vector<int64_t>& rack,
                                   const std::vector<double>& uplinks) const {
  std::vector<double> known;
  rates(rack, uplinks, &known);
  return known;
}

// Returns the log likelihood of the rates. If one way up limits several flows, their sum counts as
// one rate, and the parts that each gets count loosely. A round may be disturbed as a whole, and then
// all its rates count loosely: without this, few rounds on busy hosts outweigh many quiet ones.
double Scorer::rates(const std::vector<int64_t>& rack, const std::vector<double>& uplinks,
                     std::vector<double>* known) const {
  double value = 0;
  double quiet = 0, disturbed = 0;  // of one round
  const auto tight = [&](double ratio) {
    const double error = std::log(ratio);
    quiet += log_density(error, noise_);
    disturbed += log_density(error, kShareNoise);
    if (known != nullptr) known->push_back(std::abs(error));
  };
  std::vector<double> seen(uplinks.size()), expected(uplinks.size());
  std::vector<int64_t> count(uplinks.size());
  Filler filled;
  for (size_t r = 0; r < caps_.size(); ++r) {
    const ProbeRound& round = measured_.rounds[r];
    filled.fill(round, caps_[r], orders_[r], rack, uplinks);
    std::fill(seen.begin(), seen.end(), 0);
    std::fill(expected.begin(), expected.end(), 0);
    std::fill(count.begin(), count.end(), 0);
    quiet = std::log(1 - kDisturbed);
    disturbed = std::log(kDisturbed);
    for (size_t i = 0; i < round.size(); ++i) {
      if (filled.limit[i] == kOnCore) {
        tight(round[i].rate / filled.rates[i]);
        continue;
      }
      const auto g = static_cast<size_t>(filled.limit[i]);
      seen[g] += round[i].rate;
      expected[g] += filled.rates[i];
      ++count[g];
    }
    for (size_t i = 0; i < round.size(); ++i) {
      if (filled.limit[i] == kOnCore) continue;
      const auto members = static_cast<double>(count[static_cast<size_t>(filled.limit[i])]);
      value += (members - 1) / members *
               log_density(std::log(round[i].rate / filled.rates[i]), kShareNoise);
    }
    for (size_t g = 0; g < uplinks.size(); ++g) {
      if (count[g] > 0) tight(seen[g] / expected[g]);
    }
    const double higher = std::max(quiet, disturbed);
    value += higher + std::log(std::exp(quiet - higher) + std::exp(disturbed - higher));
  }
  return value;
}

// Returns the log likelihood of the latencies: one typical value in racks and one across. Pairs of one machine are
// not independent, so that all pairs together count as much as three a machine.
double Scorer::latencies(const std::vector<int64_t>& rack, bool& farther) const {
  farther = false;
  if (log_latency_.empty()) return 0;
  std::vector<double> kinds[2];
  size_t at = 0;
  const size_t n = rack.size();
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = i + 1; j < n; ++j, ++at) {
      if (std::isnan(log_latency_[at])) continue;
      kinds[rack[i] == rack[j] ? 0 : 1].push_back(log_latency_[at]);
    }
  }
  const size_t pairs = kinds[0].size() + kinds[1].size();
  if (pairs == 0) return 0;
  // Racks that are not clearly farther from each other than their machines are no racks to the
  // latencies: all pairs are of one kind then.
  const auto errors_of = [&](double within, double across) {
    std::vector<double> errors;
    for (const double x : kinds[0]) errors.push_back(std::abs(x - within));
    for (const double x : kinds[1]) errors.push_back(std::abs(x - across));
    return errors;
  };
  const double within = median(kinds[0]), across = median(kinds[1]);
  std::vector<double> errors = errors_of(within, across);
  double scale = std::max(kLatencyNoise, 1.5 * median(errors));
  farther = !kinds[0].empty() && across - within >= std::max(kLeastFarther, 3 * scale);
  if (!farther) {
    std::vector<double> all = kinds[0];
    all.insert(all.end(), kinds[1].begin(), kinds[1].end());
    errors = errors_of(median(all), median(all));
    scale = std::max(kLatencyNoise, 1.5 * median(errors));
  }
  double value = 0;
  for (const double error : errors) value += log_density(error, scale);
  return value * std::min(1.0, 3.0 * static_cast<double>(n) / static_cast<double>(pairs));
}

void Scorer::fit_uplinks(const std::vector<int64_t>& rack, int64_t racks, Score& out) const {
  std::vector<std::vector<double>> sums(static_cast<size_t>(racks));
  for (const ProbeRound& round : measured_.rounds) {
    std::vector<double> sum(static_cast<size_t>(racks), 0), cap = sum;
    for (const ProbeFlow& flow : round) {
      const int64_t a = rack[static_cast<size_t>(flow.a)], b = rack[static_cast<size_t>(flow.b)];
      if (a == b) continue;
      for (const int64_t g : {a, b}) {
        if (g == kOnCore) continue;
        sum[static_cast<size_t>(g)] += flow.rate;
        cap[static_cast<size_t>(g)] +=
            std::min(cards_[static_cast<size_t>(flow.a)], cards_[static_cast<size_t>(flow.b)]);
      }
    }
    // Only sums that are less than the cards can do say what the way up can do.
    for (size_t g = 0; g < sum.size(); ++g) {
      if (sum[g] > 0 && cap[g] > kHeldDown * sum[g]) sums[g].push_back(sum[g]);
    }
  }
  std::vector<int64_t> members(sums.size(), 0);
  for (const int64_t g : rack) {
    if (g != kOnCore) ++members[static_cast<size_t>(g)];
  }
  for (size_t g = 0; g < sums.size(); ++g) {
    // The way up of a single machine cannot be told from its card.
    const std::vector<double> used = members[g] < 2 ? std::vector<double>{} : upper_middle(sums[g]);
    const double rate = median(used);
    double square = 0;
    for (const double value : used) square += (value / rate - 1) * (value / rate - 1);
    out.uplinks.push_back(rate > 0 ? rate : kUnlimited);
    out.spread.push_back(
        used.size() < 2 ? noise_ : std::sqrt(square / static_cast<double>(used.size() - 1)));
    out.reached.push_back(static_cast<int64_t>(used.size()));
  }
}

Score Scorer::score(const std::vector<int64_t>& rack, int64_t racks) const {
  Score out;
  fit_uplinks(rack, racks, out);
  const double a_rack = 0.5 * std::log(static_cast<double>(std::max<size_t>(2, flows_)));
  double value = rates(rack, out.uplinks);
  // A way up that never limits is none.
  for (size_t g = 0; g < out.uplinks.size(); ++g) {
    const double rate = std::exchange(out.uplinks[g], kUnlimited);
    const double without = rates(rack, out.uplinks);
    if (without + a_rack >= value) {
      value = without;
      continue;
    }
    out.uplinks[g] = rate;
  }
  value = rates(rack, out.uplinks);
  int64_t limited = 0;
  for (const double rate : out.uplinks) limited += rate < kUnlimited ? 1 : 0;
  bool farther = false;
  out.value = value + latencies(rack, farther) - a_rack * static_cast<double>(limited);
  out.rack = rack;
  for (int64_t& g : out.rack) {
    if (g != kOnCore && !farther && out.uplinks[static_cast<size_t>(g)] == kUnlimited) g = kOnCore;
  }
  // The price of placing the machines: each is one of so many groups.
  if (racks > 0)
    out.value -= static_cast<double>(rack.size()) * std::log(static_cast<double>(racks + 1));
  return out;
}

}  // namespace tessera::network
