// The search for the racks, and what follows from them (infer()).
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "tessera/base/philox.h"
#include "tessera/base/statistics.h"
#include "tessera/network/probe.h"
#include "tessera/network/probe_score.h"

namespace tessera::network {
namespace {

using Racks = std::vector<int64_t>;

constexpr double kLeastGap = 1.5;   // factor between latencies in a rack and across
constexpr double kFast = 0.85;      // part of the cards' rate: the pair did not share a way up
constexpr double kSlow = 0.8;       // part of the others' rate: slow
constexpr double kLate = 2;         // times the others' latency: late
constexpr double kMostMisfit = 9;   // of one squared error in units of the noise
constexpr double kTemperature = 2;  // the model is not exact: differences of scores count half
constexpr int64_t kMostRacksAtRandom = 4;
constexpr int kRandomStarts = 8;

// Returns the racks numbered by their first machine; kOnCore stays.
Racks renumbered(const Racks& racks) {
  std::map<int64_t, int64_t> numbers;
  Racks out;
  for (const int64_t rack : racks) {
    if (rack == kOnCore) {
      out.push_back(kOnCore);
      continue;
    }
    out.push_back(numbers.try_emplace(rack, static_cast<int64_t>(numbers.size())).first->second);
  }
  return out;
}

int64_t count_racks(const Racks& racks) {
  return racks.empty() ? 0 : *std::max_element(racks.begin(), racks.end()) + 1;
}

// Returns the partition with the machines on the core as one more rack, in which form two partitions
// that mean the same groups are equal.
Racks groups_of(Racks racks) {
  const int64_t last = count_racks(racks);
  for (int64_t& rack : racks) rack = rack == kOnCore ? last : rack;
  return renumbered(racks);
}

class Search {
 public:
  Search(const ProbeMeasurements& measured, int64_t most, double disturbed)
      : measured_(measured), scorer_(measured, disturbed), left_(most) {}

  const Scorer& scorer() const { return scorer_; }

  double value(const Racks& racks) {
    const auto found = values_.find(racks);
    if (found != values_.end()) return found->second;
    --left_;
    const Score score = scorer_.score(racks, count_racks(racks));
    // Racks that nothing shows are no other answer.
    auto& group = groups_.try_emplace(groups_of(score.rack), -kUnlimited).first->second;
    group = std::max(group, score.value);
    return values_[racks] = score.value;
  }

  // Returns the best partition that was tried.
  Racks best() const {
    const auto better = [](const auto& a, const auto& b) { return a.second < b.second; };
    return std::max_element(values_.begin(), values_.end(), better)->first;
  }

  void run() {
    const auto n = static_cast<size_t>(measured_.machines);
    climb(Racks(n, kOnCore));
    climb(renumbered(latency_clusters(measured_)));
    climb(clusters_by_rate());
    const Philox random{1, 0};
    for (int start = 0; start < kRandomStarts && left_ > 0; ++start) {
      Racks racks(n);
      const int64_t groups = 2 + start % (kMostRacksAtRandom - 1);
      for (size_t i = 0; i < n; ++i) {
        const double u = random.uniform(static_cast<uint64_t>(start) * n + i);
        racks[i] = std::min(groups - 1, static_cast<int64_t>(u * static_cast<double>(groups)));
      }
      climb(renumbered(racks));
    }
  }

  // Takes moves that improve the partition until none does.
  void climb(Racks at) {
    double here = value(at);
    for (bool any = true; any && left_ > 0;) {
      any = move_machines(at, here);
      any |= swap_machines(at, here);
      any |= join_racks(at, here);
      any |= new_racks(at, here);
    }
  }

  // Returns the log of the sum of the posteriors of all partitions that were tried, relative to the
  // best, over those for which `counts` holds. Partitions with the same groups count once.
  // `temperature` divides the differences of scores.
  template <class F>
  double weight(double temperature, const F& counts) const {
    double best = -kUnlimited, sum = 0;
    for (const auto& [racks, value] : groups_) best = std::max(best, value);
    for (const auto& [racks, value] : groups_) {
      if (counts(racks)) sum += std::exp((value - best) / temperature);
    }
    return sum;
  }

 private:
  // Merges clusters while the pairs between them that met ran as fast as their cards more often than
  // not. Only rounds in which some pair was slow say anything.
  Racks clusters_by_rate() const {
    const auto n = static_cast<size_t>(measured_.machines);
    const std::vector<double>& cards = scorer_.cards();
    std::vector<double> sum(n * n, 0), met(n * n, 0);
    for (const ProbeRound& round : measured_.rounds) {
      std::vector<double> part;
      for (const ProbeFlow& flow : round) {
        part.push_back(flow.rate / std::min(cards[static_cast<size_t>(flow.a)],
                                            cards[static_cast<size_t>(flow.b)]));
      }
      if (part.empty() || *std::min_element(part.begin(), part.end()) > kFast) continue;
      for (size_t i = 0; i < round.size(); ++i) {
        const auto a = static_cast<size_t>(round[i].a), b = static_cast<size_t>(round[i].b);
        const double sign = part[i] > kFast ? 1 : -1;
        for (const size_t at : {a * n + b, b * n + a}) {
          sum[at] += sign;
          met[at] += 1;
        }
      }
    }
    std::vector<size_t> cluster(n);
    std::iota(cluster.begin(), cluster.end(), size_t{0});
    while (true) {
      double highest = 0;
      size_t from = 0, to = 0;
      for (size_t i = 0; i < n; ++i) {
        if (cluster[i] != i) continue;
        for (size_t j = i + 1; j < n; ++j) {
          if (cluster[j] != j || met[i * n + j] == 0) continue;
          if (const double mean_sign = sum[i * n + j] / (met[i * n + j] + 0.5);
              mean_sign > highest) {
            highest = mean_sign;
            to = i;
            from = j;
          }
        }
      }
      if (highest <= 0) break;
      for (size_t& one : cluster) one = one == from ? to : one;
      for (size_t k = 0; k < n; ++k) {
        sum[to * n + k] += sum[from * n + k];
        met[to * n + k] += met[from * n + k];
        sum[k * n + to] = sum[to * n + k];
        met[k * n + to] = met[to * n + k];
      }
    }
    Racks out;
    for (const size_t one : cluster) out.push_back(static_cast<int64_t>(one));
    return renumbered(out);
  }

  // Tries a partition; returns whether it is better than `at`, which it then replaces.
  bool step(Racks next, Racks& at, double& value_at) {
    next = renumbered(next);
    if (left_ <= 0 && !values_.contains(next)) return false;
    const double here = value(next);
    if (here <= value_at + 1e-9) return false;
    at = std::move(next);
    value_at = here;
    return true;
  }

  bool move_machines(Racks& at, double& here) {
    bool any = false;
    for (size_t i = 0; i < at.size(); ++i) {
      for (int64_t rack = kOnCore; rack <= count_racks(at); ++rack) {
        if (rack == at[i]) continue;
        Racks next = at;
        next[i] = rack;
        any |= step(std::move(next), at, here);
      }
    }
    return any;
  }
  bool swap_machines(Racks& at, double& here) {
    bool any = false;
    for (size_t i = 0; i < at.size(); ++i) {
      for (size_t j = i + 1; j < at.size(); ++j) {
        if (at[i] == at[j]) continue;
        Racks next = at;
        std::swap(next[i], next[j]);
        any |= step(std::move(next), at, here);
      }
    }
    return any;
  }
  bool join_racks(Racks& at, double& here) {
    bool any = false;
    for (int64_t a = kOnCore; a < count_racks(at); ++a) {
      for (int64_t b = a + 1; b < count_racks(at); ++b) {
        Racks next = at;
        for (int64_t& rack : next) rack = rack == b ? a : rack;
        any |= step(std::move(next), at, here);
      }
    }
    return any;
  }
  // Makes the machines on the core a rack, and puts pairs of machines into a rack of their own.
  bool new_racks(Racks& at, double& here) {
    bool any = false;
    Racks next = at;
    for (int64_t& rack : next) rack = rack == kOnCore ? count_racks(at) : rack;
    any |= step(std::move(next), at, here);
    for (size_t i = 0; i < at.size(); ++i) {
      for (size_t j = i + 1; j < at.size(); ++j) {
        if (at[i] != at[j]) continue;
        Racks pair = at;
        pair[i] = pair[j] = count_racks(at);
        any |= step(std::move(pair), at, here);
      }
    }
    return any;
  }

  const ProbeMeasurements& measured_;
  Scorer scorer_;
  int64_t left_;
  std::map<Racks, double> values_;
  std::map<Racks, double> groups_;  // by what the partition means
};

// Returns the cards that are known: the median of the rates at which a pair was limited by the card.
std::vector<Estimate> estimate_cards(const ProbeMeasurements& measured, const Scorer& scorer,
                                     const Racks& racks, const std::vector<double>& uplinks) {
  const std::vector<double>& cards = scorer.cards();
  std::vector<std::vector<double>> seen(cards.size());
  for (const ProbeRound& round : measured.rounds) {
    const std::vector<double> fair = fair_round(round, racks, cards, uplinks);
    for (size_t i = 0; i < round.size(); ++i) {
      const auto a = static_cast<size_t>(round[i].a), b = static_cast<size_t>(round[i].b);
      const double cap = std::min(cards[a], cards[b]);
      if (fair[i] < cap) continue;  // a way up was the limit
      if (cards[a] <= cards[b] * 1.1) seen[a].push_back(round[i].rate);
      if (cards[b] <= cards[a] * 1.1) seen[b].push_back(round[i].rate);
    }
  }
  std::vector<Estimate> out;
  for (size_t i = 0; i < cards.size(); ++i) {
    if (seen[i].empty()) {
      out.push_back({cards[i], 0.1, false});
      continue;
    }
    const double rate = median(seen[i]);
    std::vector<double> errors;
    for (const double value : seen[i]) errors.push_back(std::abs(value / rate - 1));
    const double spread = std::max(0.02, 1.5 * median(errors));
    out.push_back({rate, spread / std::sqrt(static_cast<double>(seen[i].size())), true});
  }
  return out;
}

// Returns the mean squared error in units of the noise, about 1 for a model that fits.
double lack_of_fit(const std::vector<double>& errors, double noise) {
  std::vector<double> squares;
  for (const double error : errors)
    squares.push_back(std::min(kMostMisfit, error * error / noise / noise));
  return mean(squares);
}

std::vector<int64_t> below_share(const std::vector<Estimate>& estimates) {
  std::vector<double> rates;
  for (const Estimate& one : estimates) {
    if (one.reached) rates.push_back(one.rate);
  }
  std::vector<int64_t> out;
  for (size_t i = 0; i < estimates.size(); ++i) {
    if (rates.size() > 1 && estimates[i].reached && estimates[i].rate < kSlow * median(rates))
      out.push_back(static_cast<int64_t>(i));
  }
  return out;
}

void add_latencies(const ProbeMeasurements& measured, Inference& out) {
  const auto racks = static_cast<size_t>(count_racks(out.rack));
  std::vector<std::vector<double>> kinds(racks * racks);
  for (int64_t i = 0; i < measured.machines; ++i) {
    for (int64_t j = 0; j < measured.machines; ++j) {
      if (i == j || measured.latency(i, j) <= 0) continue;
      kinds[static_cast<size_t>(out.rack[static_cast<size_t>(i)]) * racks +
            static_cast<size_t>(out.rack[static_cast<size_t>(j)])]
          .push_back(measured.latency(i, j));
    }
  }
  for (size_t g = 0; g < racks; ++g) out.rack_latency_s.push_back(median(kinds[g * racks + g]));
  for (const std::vector<double>& kind : kinds) out.cross_latency_s.push_back(median(kind));
  // A machine is late if its pairs take much longer than other pairs of the same two racks.
  for (int64_t i = 0; i < measured.machines; ++i) {
    std::vector<double> factors;
    for (int64_t j = 0; j < measured.machines; ++j) {
      const double usual =
          out.cross_latency_s[static_cast<size_t>(out.rack[static_cast<size_t>(i)]) * racks +
                              static_cast<size_t>(out.rack[static_cast<size_t>(j)])];
      if (i != j && usual > 0 && measured.latency(i, j) > 0)
        factors.push_back(measured.latency(i, j) / usual);
    }
    if (factors.size() > 1 && median(factors) > kLate) out.late_machines.push_back(i);
  }
}

}  // namespace

std::vector<int64_t> latency_clusters(const ProbeMeasurements& measured) {
  const int64_t n = measured.machines;
  std::vector<double> sorted;
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = i + 1; j < n; ++j) {
      if (measured.latency(i, j) > 0) sorted.push_back(measured.latency(i, j));
    }
  }
  std::sort(sorted.begin(), sorted.end());
  double gap = 0, border = 0;
  for (size_t i = 1; i < sorted.size(); ++i) {
    if (sorted[i] / sorted[i - 1] > gap) {
      gap = sorted[i] / sorted[i - 1];
      border = std::sqrt(sorted[i] * sorted[i - 1]);
    }
  }
  Racks one(static_cast<size_t>(n), 0);
  if (gap < kLeastGap) return one;
  Racks cluster(static_cast<size_t>(n));
  std::iota(cluster.begin(), cluster.end(), int64_t{0});
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = i + 1; j < n; ++j) {
      if (measured.latency(i, j) <= 0 || measured.latency(i, j) > border) continue;
      const int64_t from = cluster[static_cast<size_t>(j)], to = cluster[static_cast<size_t>(i)];
      for (int64_t& other : cluster) other = other == from ? to : other;
    }
  }
  // All pairs inside must be below the border: else it is no border between clusters.
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = i + 1; j < n; ++j) {
      const bool same = cluster[static_cast<size_t>(i)] == cluster[static_cast<size_t>(j)];
      if (same && measured.latency(i, j) > border) return one;
    }
  }
  return renumbered(cluster);
}

Inference infer(const ProbeMeasurements& measured, const std::vector<int64_t>& known_rack,
                int64_t most_partitions) {
  Search search(measured, most_partitions, kDisturbed);
  Inference out;
  Racks racks = known_rack;
  if (racks.empty()) {
    // Where each slow round may be a disturbed one, steps towards the racks do not pay before most of
    // them are made. So a search in which no round is disturbed gives a start.
    Search strict(measured, most_partitions / 2, 0);
    strict.run();
    search.climb(strict.best());
    search.run();
    racks = search.best();
    racks = renumbered(search.scorer().score(racks, count_racks(racks)).rack);
  }
  const Score score = search.scorer().score(racks, count_racks(racks));
  // The machines on the core are a rack of their own if there are others.
  std::vector<double> uplinks = score.uplinks;
  const int64_t last = count_racks(racks);
  Racks numbered = racks;
  for (int64_t& rack : numbered) rack = rack == kOnCore ? last : rack;
  out.rack = renumbered(numbered);
  const int64_t groups = count_racks(out.rack);
  out.cards = estimate_cards(measured, search.scorer(), racks, uplinks);
  const std::vector<double> errors = search.scorer().errors(racks, uplinks);
  out.misfit = median(errors);
  if (groups > 1) {
    out.uplinks.resize(static_cast<size_t>(groups));
    for (size_t i = 0; i < racks.size(); ++i) {
      const auto to = static_cast<size_t>(out.rack[i]);
      if (racks[i] == kOnCore) continue;
      const auto from = static_cast<size_t>(racks[i]);
      if (score.uplinks[from] == kUnlimited) continue;
      const double error =
          std::max(0.01, score.spread[from]) /
          std::sqrt(static_cast<double>(std::max<int64_t>(1, score.reached[from])));
      out.uplinks[to] = {score.uplinks[from], error, true};
    }
    // Between two racks there is one rate: that of the smaller way up.
    if (groups == 2 && out.uplinks[0].reached != out.uplinks[1].reached) {
      out.uplinks[out.uplinks[0].reached ? 1 : 0] = out.uplinks[out.uplinks[0].reached ? 0 : 1];
    }
  }
  if (known_rack.empty()) {
    // Rates that differ more from the best model than noise can explain, as on busy hosts, make it
    // less sure.
    const double temperature =
        kTemperature * std::max(1.0, lack_of_fit(errors, search.scorer().noise()));
    const double all = search.weight(temperature, [](const Racks&) { return true; });
    out.probability =
        search.weight(temperature, [&](const Racks& one) { return one == out.rack; }) / all;
    for (size_t i = 0; i < racks.size(); ++i) {
      // The machine has the same neighbours.
      const double same = search.weight(temperature, [&](const Racks& one) {
        for (size_t j = 0; j < one.size(); ++j) {
          if ((one[j] == one[i]) != (out.rack[j] == out.rack[i])) return false;
        }
        return true;
      });
      out.sure_of.push_back(same / all);
    }
  } else {
    out.probability = 1;
    out.sure_of.assign(racks.size(), 1);
  }
  add_latencies(measured, out);
  out.slow_machines = below_share(out.cards);
  out.slow_racks = below_share(out.uplinks);
  return out;
}

}  // namespace tessera::network
