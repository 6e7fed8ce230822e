// How likely a partition of machines into racks is, given measurements (probe.h has the model).
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "tessera/network/probe.h"

namespace tessera::network {

inline constexpr int64_t kOnCore = -1;
inline constexpr double kDisturbed = 0.02;
inline constexpr double kUnlimited = std::numeric_limits<double>::infinity();

// Returns what each card can do at most: the median of the rates that come near the highest.
std::vector<double> card_rates(const ProbeMeasurements& measured);

struct Score {
  double value = 0;  // log of the posterior, up to a constant
  // The partition without racks that nothing shows: those whose way up never limits, and which are
  // not farther from others, are on the core.
  std::vector<int64_t> rack;
  std::vector<double> uplinks;   // by rack; infinite: it never limits
  std::vector<double> spread;    // relative spread of the sums that reached it
  std::vector<int64_t> reached;  // number of rounds whose sum reached it
};

// Scores partitions of one set of measurements.
class Scorer {
 public:
  // `disturbed`: the share of the rounds that other work on the hosts slows as a whole.
  Scorer(const ProbeMeasurements& measured, double disturbed);
  // `rack` of a machine is kOnCore or a number from 0 to racks - 1.
  Score score(const std::vector<int64_t>& rack, int64_t racks) const;
  // Returns the relative errors of the rates that the model knows well: of pairs that their cards
  // limit, and of the sums of those that a way up limits.
  std::vector<double> errors(const std::vector<int64_t>& rack,
                             const std::vector<double>& uplinks) const;
  const std::vector<double>& cards() const { return cards_; }
  double noise() const { return noise_; }

 private:
  // Adds the errors that errors() returns to `known`, unless it is null.
  double rates(const std::vector<int64_t>& rack, const std::vector<double>& uplinks,
               std::vector<double>* known = nullptr) const;
  // Sets `farther` if the racks are clearly farther from each other than their machines.
  double latencies(const std::vector<int64_t>& rack, bool& farther) const;
  void fit_uplinks(const std::vector<int64_t>& rack, int64_t racks, Score& out) const;

  const ProbeMeasurements& measured_;
  std::vector<double> cards_;
  // By round: what the cards of each pair can do, and the pairs in this order.
  std::vector<std::vector<double>> caps_;
  std::vector<std::vector<size_t>> orders_;
  std::vector<double> log_latency_;  // of pairs i < j, without what is due to single machines
  double disturbed_ = 0;
  double noise_ = 0;  // relative error of a rate, and of a sum of rates
  size_t flows_ = 0;
};

}  // namespace tessera::network
