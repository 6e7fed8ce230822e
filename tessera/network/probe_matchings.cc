// Which machines pair up in which round of a probe.
#include <algorithm>
#include <numeric>

#include "tessera/base/philox.h"
#include "tessera/network/probe.h"

namespace tessera::network {
namespace {

// Returns a permutation of 0 .. n-1 that the seed draws.
std::vector<int64_t> shuffled(int64_t n, uint64_t seed, uint64_t stream) {
  std::vector<int64_t> out(static_cast<size_t>(n));
  std::iota(out.begin(), out.end(), int64_t{0});
  const Philox random{seed, stream};
  for (size_t i = out.size(); i > 1; --i) {
    const auto k = static_cast<size_t>(random.uniform(i) * static_cast<double>(i));
    std::swap(out[i - 1], out[std::min(k, i - 1)]);
  }
  return out;
}

}  // namespace

std::vector<std::pair<int64_t, int64_t>> matching(int64_t machines, uint64_t seed, int64_t round) {
  // The circle method: one seat stays, the others turn by one a round. An odd number gets one more
  // seat, whose neighbour rests.
  const int64_t seats = machines + machines % 2;
  std::vector<std::pair<int64_t, int64_t>> out;
  if (machines < 2) return out;
  const int64_t turns = seats - 1;
  const auto lap = static_cast<uint64_t>(round / turns);
  const std::vector<int64_t> who = shuffled(machines, seed, 2 * lap);
  const std::vector<int64_t> order = shuffled(turns, seed, 2 * lap + 1);
  const int64_t turn = order[static_cast<size_t>(round % turns)];
  const auto seat = [&](int64_t i) { return i == 0 ? int64_t{0} : 1 + (i - 1 + turn) % turns; };
  for (int64_t i = 0; i < seats / 2; ++i) {
    const int64_t a = seat(i), b = seat(seats - 1 - i);
    if (a >= machines || b >= machines) continue;
    const int64_t x = who[static_cast<size_t>(a)], y = who[static_cast<size_t>(b)];
    out.emplace_back(std::min(x, y), std::max(x, y));
  }
  std::sort(out.begin(), out.end());
  return out;
}

std::vector<std::pair<int64_t, int64_t>> crossing_matching(const std::vector<int64_t>& rack,
                                                           uint64_t seed, int64_t round) {
  // The racks one after another, each in an order that is drawn; then machine i meets the one that
  // is half of all further.
  const auto n = static_cast<int64_t>(rack.size());
  std::vector<int64_t> who = shuffled(n, seed, 1'000'000 + static_cast<uint64_t>(round));
  std::stable_sort(who.begin(), who.end(), [&](int64_t a, int64_t b) {
    return rack[static_cast<size_t>(a)] < rack[static_cast<size_t>(b)];
  });
  std::vector<std::pair<int64_t, int64_t>> out;
  for (int64_t i = 0; i < n / 2; ++i) {
    const int64_t a = who[static_cast<size_t>(i)], b = who[static_cast<size_t>(i + n - n / 2)];
    out.emplace_back(std::min(a, b), std::max(a, b));
  }
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace tessera::network
