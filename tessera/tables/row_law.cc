#include "tessera/tables/row_law.h"

#include <algorithm>
#include <cmath>

namespace tessera::tables {
namespace {

constexpr double kSamplesOfReuse = 65536;  // samples of the batch to which the bins refer

// Returns the sum of k^-exponent for k = 1 .. count. It adds the first terms one by one and takes
// an integral for the others.
double zipf_weight(int64_t count, double exponent) {
  constexpr int64_t kTerms = 64;
  double sum = 0;
  for (int64_t k = 1; k <= std::min(count, kTerms); ++k)
    sum += std::pow(static_cast<double>(k), -exponent);
  if (count <= kTerms) return sum;
  const double from = std::log(static_cast<double>(kTerms) + 0.5),
               to = std::log(static_cast<double>(count) + 0.5), power = 1 - exponent;
  if (std::abs(power) < 1e-9) return sum + to - from;
  return sum + (std::exp(power * to) - std::exp(power * from)) / power;
}

// Returns how often a row of the bin occurs in a batch, which is taken to be the middle of the bin.
double occurrences(size_t bin) {
  if (bin == 0) return 1;
  const double most = std::ldexp(1, static_cast<int>(bin));
  return bin + 1 == kReuseBins ? most * 0.75 : (most / 2 + 1 + most) / 2;
}

double first_by_reuse(const Table& table, double rows) {
  double shares = 0, mean = 0;
  for (size_t bin = 0; bin < kReuseBins; ++bin) {
    shares += table.reuse[bin];
    mean += table.reuse[bin] * occurrences(bin);
  }
  const auto all = static_cast<double>(table.rows);
  if (shares <= 0) return rows / all;
  const double lookups = kSamplesOfReuse * table.bags * table.pooling_factor;
  const double named = std::min(all, lookups * shares / mean);  // rows of the batch
  double begin = 0, found = 0;
  for (size_t bin = kReuseBins; bin-- > 0;) {
    const double own = bin == 0 ? all - begin : named * table.reuse[bin] / shares;
    const double weight = table.reuse[bin] * occurrences(bin) / mean;
    if (own > 0) found += weight * std::clamp((rows - begin) / own, 0.0, 1.0);
    begin += own;
  }
  return std::min(found, 1.0);
}

double share_of_first(const Table& table, int64_t rows) {
  if (rows <= 0) return 0;
  if (rows >= table.rows) return 1;
  if (table.zipf > 0) return zipf_weight(rows, table.zipf) / zipf_weight(table.rows, table.zipf);
  if (table.ordered) return first_by_reuse(table, static_cast<double>(rows));
  return static_cast<double>(rows) / static_cast<double>(table.rows);
}

}  // namespace

bool knows_frequency(const Table& table) { return table.zipf > 0 || table.ordered; }

double share_of_rows(const Table& table, int64_t first, int64_t rows) {
  return share_of_first(table, first + rows) - share_of_first(table, first);
}

double share_of_piece(const Table& table, const Piece& piece, int devices) {
  const double share = share_of_rows(table, piece.first_row, piece.rows);
  return piece.kind == Sharding::kReplicated ? share / devices : share;
}

}  // namespace tessera::tables
