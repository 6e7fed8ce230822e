#include "tessera/data/reuse_law.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "tessera/base/check.h"
#include "tessera/base/one_line.h"
#include "tessera/base/text.h"

namespace tessera {
namespace {

// Returns the rest of the line after `key`, trimmed, if the line begins with `key`; else nothing.
std::optional<std::string_view> after(std::string_view line, std::string_view key) {
  if (!line.starts_with(key)) return std::nullopt;
  return trim(line.substr(key.size()));
}

// A line that describes a bin: "(1, 2]: 0.152" or, for the last bin, "(32768+: 0.000".
struct Bin {
  double low = 0, share = 0;
  std::optional<double> high;
};

std::optional<Bin> parse_bin(std::string_view line) {
  const size_t colon = line.find(':');
  if (!line.starts_with('(') || colon == std::string_view::npos) return std::nullopt;
  const std::string_view range = line.substr(1, colon - 1);
  const auto share = parse_double(trim(line.substr(colon + 1)));
  const size_t comma = range.find(',');
  const bool open = range.ends_with('+');
  const auto low = parse_double(range.substr(0, open ? range.size() - 1 : comma));
  if (!share || !low || *share < 0 || *share > 1) return std::nullopt;
  Bin bin{*low, *share, std::nullopt};
  if (open) return bin;
  if (comma == std::string_view::npos || !range.ends_with(']')) return std::nullopt;
  const auto high = parse_double(trim(range.substr(comma + 1, range.size() - comma - 2)));
  if (!high || *high <= *low || *high > 1e9) return std::nullopt;
  bin.high = *high;
  return bin;
}

// Returns the share of the rows in each bin. The published shares have three digits. A share that
// is too small for these is computed from the bin's share of the look-ups.
std::vector<double> sharp_rows_share(const ReuseHistogram& histogram) {
  constexpr double kRounded = 0.0015;
  std::vector<double> shares = histogram.rows_share;
  for (size_t b = 0; b < shares.size(); ++b) {
    if (shares[b] >= kRounded) continue;
    const double low = std::max(1.0, histogram.edges[b]);
    const bool open = b + 1 == shares.size();
    const double lookups = open ? 1.5 * low : std::sqrt(low * histogram.edges[b + 1]);
    shares[b] = histogram.lookups_share[b] * histogram.lookups / histogram.rows / lookups;
  }
  double sum = 0;
  for (const double share : shares) sum += share;
  for (double& share : shares) share /= sum;
  return shares;
}

// Returns the probability of each bin for a Poisson distributed number, given that the number is
// not 0.
std::vector<double> bins_of(double mean, const std::vector<double>& edges) {
  std::vector<double> bins(edges.size());
  const double spread = 12 * std::sqrt(mean) + 30;
  const auto last = static_cast<int64_t>(mean + spread);
  double sum = 0;
  size_t bin = 0;
  for (auto n = std::max<int64_t>(1, static_cast<int64_t>(mean - spread)); n <= last; ++n) {
    const auto count = static_cast<double>(n);
    while (bin + 1 < edges.size() && count > edges[bin + 1]) ++bin;
    const double probability = std::exp(count * std::log(mean) - mean - std::lgamma(count + 1));
    bins[bin] += probability;
    sum += probability;
  }
  for (double& probability : bins) probability /= sum;
  return bins;
}

}  // namespace

Result<std::vector<ReuseHistogram>> parse_reuse(std::string_view text, const std::string& file) {
  std::vector<ReuseHistogram> sections;
  std::vector<double>* shares = nullptr;  // list that the next bins are added to
  int64_t number = 0;
  const auto expected = [&](std::string_view what, std::string_view found) {
    return invalid_input(
        fmt::format("{}:{}: expected {}, found '{}'", file, number, what, short_line(found, 60)));
  };
  for (; !text.empty();) {
    ++number;
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = trim(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty() || line.starts_with('[')) continue;
    if (line.ends_with(".pt")) {
      sections.emplace_back().name = line;
      shares = nullptr;
      continue;
    }
    if (sections.empty()) return expected("the name of a data set, NAME.pt", line);
    ReuseHistogram& section = sections.back();
    const auto lookups = after(line, "Avg # of indices:");
    const auto rows = after(line, "Avg # of unique cols:");
    if (lookups || rows) {
      const auto value = parse_double(lookups ? *lookups : *rows);
      if (!value || !(*value >= 1 && *value < 1e15)) return expected("a number from 1", line);
      (lookups ? section.lookups : section.rows) = *value;
    } else if (line.starts_with("Histogram of col sizes")) {
      shares = &section.rows_share;
    } else if (line.starts_with("Ratio of index distribution")) {
      shares = &section.lookups_share;
    } else if (line.starts_with("(")) {
      const auto bin = parse_bin(line);
      if (!bin || shares == nullptr) return expected("'(LO, HI]: SHARE'", line);
      if (shares == &section.rows_share) section.edges.push_back(bin->low);
      shares->push_back(bin->share);
    } else if (!after(line, "Locality stats") && !after(line, "Avg col size:")) {
      return expected("a line of statistics", line);
    }
  }
  for (const ReuseHistogram& section : sections) {
    double sum = 0;
    for (const double share : section.rows_share) sum += share;
    const bool rising = std::adjacent_find(section.edges.begin(), section.edges.end(),
                                           std::greater_equal<>()) == section.edges.end();
    if (section.edges.size() < 2 || section.lookups_share.size() != section.edges.size() ||
        !rising || section.edges.front() < 0 || section.lookups < 1 || section.rows < 1 ||
        !(sum > 0.5)) {
      return expected("two histograms of the same bins and the numbers of indices and unique cols",
                      section.name);
    }
  }
  if (sections.empty()) return expected("the name of a data set, NAME.pt", "");
  return sections;
}

Result<std::vector<ReuseHistogram>> read_reuse(const std::string& path) {
  TESSERA_TRY(const std::string text, read_file(path));
  return parse_reuse(text, path);
}

ReuseLaw ReuseLaw::fit(const ReuseHistogram& histogram) {
  constexpr int kRounds = 3000, kLowest = -6;  // the rarest class has 2^-3 look-ups a batch
  const std::vector<double> shares = sharp_rows_share(histogram);
  std::vector<double> means, weights;  // weights: shares of the rows that are looked up
  std::vector<std::vector<double>> bins;
  for (int half = kLowest; std::exp2(half / 2.0) < 2 * histogram.edges.back(); ++half) {
    means.push_back(std::exp2(half / 2.0));
    bins.push_back(bins_of(means.back(), histogram.edges));
  }
  weights.assign(means.size(), 1.0 / static_cast<double>(means.size()));
  for (int round = 0; round < kRounds; ++round) {
    std::vector<double> next(means.size());
    for (size_t b = 0; b < shares.size(); ++b) {
      double mixed = 0;
      for (size_t j = 0; j < means.size(); ++j) mixed += weights[j] * bins[j][b];
      if (mixed <= 0) continue;
      for (size_t j = 0; j < means.size(); ++j) {
        next[j] += shares[b] * weights[j] * bins[j][b] / mixed;
      }
    }
    weights = std::move(next);
  }
  ReuseLaw law;
  double sum = 0;
  for (size_t j = means.size(); j-- > 0;) {
    const double all = weights[j] / -std::expm1(-means[j]);  // also rows that are not looked up
    law.classes.push_back({all, means[j]});
    sum += all;
  }
  for (Class& one : law.classes) one.share /= sum;
  return law;
}

RowDraw::RowDraw(const ReuseLaw& law, int64_t rows) {
  double before = 0, sum = 0;
  first_.push_back(0);
  for (const ReuseLaw::Class& one : law.classes) {
    before += one.share;
    const auto next =
        std::min(rows, static_cast<int64_t>(std::llround(before * static_cast<double>(rows))));
    if (next == first_.back()) continue;
    sum += static_cast<double>(next - first_.back()) * one.lookups;
    upto_.push_back(sum);
    first_.push_back(next);
  }
  TESSERA_CHECK(sum > 0, "a law of {} classes for {} rows", law.classes.size(), rows);
  first_.back() = rows;
  for (double& share : upto_) share /= sum;
}

int64_t RowDraw::operator()(const Philox& philox, uint64_t index) const {
  const auto words = philox.block(index);
  const double uniform = (static_cast<double>(words[0]) + (words[1] >> 11) * 0x1p-21) * 0x1p-32;
  const auto at = std::upper_bound(upto_.begin(), upto_.end() - 1, uniform) - upto_.begin();
  const int64_t begin = first_[static_cast<size_t>(at)];
  const auto size = static_cast<uint64_t>(first_[static_cast<size_t>(at) + 1] - begin);
  const uint64_t x = uint64_t{words[2]} << 32 | words[3];
  return begin + static_cast<int64_t>(x % size);
}

}  // namespace tessera
