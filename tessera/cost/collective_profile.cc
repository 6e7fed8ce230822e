#include "tessera/cost/collective_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <string>
#include <vector>

namespace tessera {
namespace {

struct Point {
  double bytes, seconds, spread;
};
using Points = std::vector<Point>;  // sorted by bytes; seconds never fall

int64_t coordinate(const Family& family, std::string_view name) {
  const auto it = std::find(family.sizes.begin(), family.sizes.end(), name);
  return it == family.sizes.end() ? -1 : it - family.sizes.begin();
}

// Returns the points for each number of ranks. If the family has the coordinate `nodes`, only
// samples with this number of nodes count.
std::map<int64_t, Points> points_of(const Family& family, int64_t nodes) {
  const int64_t node = coordinate(family, "nodes"), rank = coordinate(family, "ranks"),
                byte = coordinate(family, "bytes");
  std::map<int64_t, Points> out;
  if (rank < 0 || byte < 0) return out;
  for (const Sample& sample : family.samples) {
    const auto size = [&](int64_t i) { return sample.size[static_cast<size_t>(i)]; };
    if (node >= 0 && std::llround(size(node)) != nodes) continue;
    if (size(byte) <= 0 || sample.seconds <= 0) continue;
    out[std::llround(size(rank))].push_back({size(byte), sample.seconds, sample.spread});
  }
  for (auto& [ranks, points] : out) {
    std::sort(points.begin(), points.end(),
              [](const Point& a, const Point& b) { return a.bytes < b.bytes; });
    for (size_t i = 1; i < points.size(); ++i) {
      points[i].seconds = std::max(points[i].seconds, points[i - 1].seconds);
    }
  }
  return out;
}

double log_between(double x, double x0, double y0, double x1, double y1) {
  return y0 * std::pow(y1 / y0, std::log(x / x0) / std::log(x1 / x0));
}

// Returns the uncertainty of a time whose size differs from that of the nearest sample by `factor`.
// It grows from a factor of 2 on.
double strayed(double uncertainty, double factor) {
  return factor <= 2 ? uncertainty : uncertainty + .1 * std::log2(factor / 2);
}

constexpr double kMeasuredError = .03, kInterpolatedError = .08;

Figure at_bytes(const Points& points, double bytes) {
  const auto above = std::lower_bound(points.begin(), points.end(), bytes,
                                      [](const Point& p, double b) { return p.bytes < b; });
  if (above != points.end() && above->bytes == bytes) {
    return {above->seconds, CostSource::kMeasured, std::max(kMeasuredError, above->spread / 2)};
  }
  Figure out{0, CostSource::kInterpolated, kInterpolatedError};
  if (above == points.begin()) {
    out.seconds = above->seconds;
    out.uncertainty = strayed(out.uncertainty, above->bytes / std::max(bytes, 1.));
    return out;
  }
  const Point& below = *(above - 1);
  if (above == points.end()) {
    out.seconds = below.seconds * bytes / below.bytes;
    out.uncertainty = strayed(out.uncertainty, bytes / below.bytes);
    return out;
  }
  out.seconds = log_between(bytes, below.bytes, below.seconds, above->bytes, above->seconds);
  return out;
}

Figure at_ranks(const std::map<int64_t, Points>& by_ranks, int64_t ranks, double bytes) {
  const auto above = by_ranks.lower_bound(ranks);
  if (above != by_ranks.end() && above->first == ranks) return at_bytes(above->second, bytes);
  const auto wanted = static_cast<double>(ranks);
  if (above == by_ranks.begin() || above == by_ranks.end()) {
    const auto nearest = above == by_ranks.end() ? std::prev(above) : above;
    Figure out = at_bytes(nearest->second, bytes);
    const double factor = wanted / static_cast<double>(nearest->first);
    out.seconds *= factor;
    out.source = CostSource::kInterpolated;
    out.uncertainty = strayed(std::max(out.uncertainty, .2), std::max(factor, 1 / factor));
    return out;
  }
  const auto below = std::prev(above);
  const Figure low = at_bytes(below->second, bytes), high = at_bytes(above->second, bytes);
  return {log_between(wanted, static_cast<double>(below->first), low.seconds,
                      static_cast<double>(above->first), high.seconds),
          CostSource::kInterpolated,
          std::max({low.uncertainty, high.uncertainty, kInterpolatedError})};
}

}  // namespace

namespace {

constexpr std::array<std::pair<Style::Transport, std::string_view>, 3> kProfiledTransports = {
    {{Style::Transport::kThreads, "threads"},
     {Style::Transport::kNccl, "nccl"},
     {Style::Transport::kMpi, "mpi"}}};

}  // namespace

std::optional<Figure> profiled_message(const Profile& profile, int64_t bytes,
                                       Style::Transport transport) {
  for (const auto& [kind, name] : kProfiledTransports) {
    if (transport != Style::Transport::kAny && transport != kind) continue;
    const auto it = profile.families.find(fmt::format("message.{}", name));
    if (it == profile.families.end() || it->second.samples.empty()) continue;
    Points points;
    for (const Sample& sample : it->second.samples)
      points.push_back({sample.size[0], sample.seconds, sample.spread});
    return at_bytes(points, static_cast<double>(bytes));
  }
  return std::nullopt;
}

std::optional<Figure> profiled_collective(const Profile& profile, std::string_view collective,
                                          int64_t nodes, int64_t ranks, int64_t bytes,
                                          Style::Transport transport) {
  for (const auto& [kind, name] : kProfiledTransports) {
    if (transport != Style::Transport::kAny && transport != kind) continue;
    const auto it = profile.families.find(fmt::format("{}.{}", collective, name));
    if (it == profile.families.end()) continue;
    const bool tells_nodes = coordinate(it->second, "nodes") >= 0;
    if (nodes > 1 && !tells_nodes) continue;
    const auto by_ranks = points_of(it->second, nodes);
    if (by_ranks.empty()) continue;
    return at_ranks(by_ranks, ranks, static_cast<double>(bytes));
  }
  return std::nullopt;
}

}  // namespace tessera
