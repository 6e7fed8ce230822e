#include "tessera/planners/published/links.h"

#include <fmt/format.h>

namespace tessera::published {
namespace {

using LinkMatrix = std::vector<std::vector<double>>;

constexpr double kLeastBandwidth = 1e-9;

Status read_matrix(const JsonTable& in, const std::string& key, size_t devices, double least,
                   LinkMatrix& out) {
  TESSERA_TRY_VOID(in.matrix(key, out, 0));
  if (out.size() != devices || out[0].size() != devices) {
    return in.error(key, fmt::format("expected {0} rows of {0} numbers", devices));
  }
  for (size_t p = 0; p < devices; ++p) {
    for (size_t q = 0; q < devices; ++q) {
      if (p == q) continue;
      const std::string at = fmt::format("{}[{}][{}]", key, p, q);
      const double value = out[p][q];
      if (!(value >= least && value < std::numeric_limits<double>::infinity())) {
        return in.error(at, fmt::format("expected a number of at least {}", least));
      }
      if (value != out[q][p]) return in.error(at, "differs from the other direction");
    }
    out[p][p] = 0;
  }
  return {};
}

}  // namespace

Status read_links(const JsonTable& in, size_t devices, const std::array<const char*, 2>& names,
                  LinkMatrix& delay, LinkMatrix& bandwidth) {
  if (in.has(names[1])) {
    delay.assign(devices, std::vector<double>(devices, 0));
    if (in.has(names[0])) TESSERA_TRY_VOID(read_matrix(in, names[0], devices, 0, delay));
    return read_matrix(in, names[1], devices, kLeastBandwidth, bandwidth);
  }
  TESSERA_TRY_VOID(in.require({"groups", "inside", "across"}));
  delay.assign(devices, std::vector<double>(devices, 0));
  bandwidth = delay;
  std::vector<std::vector<int64_t>> groups;
  TESSERA_TRY_VOID(in.whole_lists("groups", groups, 0, static_cast<int64_t>(devices) - 1));
  std::vector<size_t> group(devices, groups.size());
  for (size_t g = 0; g < groups.size(); ++g) {
    for (const int64_t p : groups[g]) group[static_cast<size_t>(p)] = g;
  }
  for (size_t p = 0; p < devices; ++p) {
    if (group[p] == groups.size())
      return in.error("groups", fmt::format("device {} is in none", p));
  }
  const auto read_link = [&](const JsonTable& link, double& seconds, double& rate) -> Status {
    TESSERA_TRY_VOID(link.require({names[1]}));
    TESSERA_TRY_VOID(link.real(names[0], seconds, 0));
    TESSERA_TRY_VOID(link.real(names[1], rate, kLeastBandwidth));
    return link.done();
  };
  std::array<double, 2> delays{0, 0};
  std::array<double, 2> rates{1, 1};
  TESSERA_TRY(const JsonTable inside, in.table("inside"));
  TESSERA_TRY(const JsonTable across, in.table("across"));
  TESSERA_TRY_VOID(read_link(inside, delays[0], rates[0]));
  TESSERA_TRY_VOID(read_link(across, delays[1], rates[1]));
  for (size_t p = 0; p < devices; ++p) {
    for (size_t q = 0; q < devices; ++q) {
      if (p == q) continue;
      delay[p][q] = delays.at(group[p] == group[q] ? 0 : 1);
      bandwidth[p][q] = rates.at(group[p] == group[q] ? 0 : 1);
    }
  }
  TESSERA_TRY(const auto exceptions, in.tables("exceptions"));
  for (const JsonTable& row : exceptions) {
    int64_t from = 0;
    int64_t to = 0;
    TESSERA_TRY_VOID(row.require({"from", "to"}));
    TESSERA_TRY_VOID(row.whole("from", from, 0, static_cast<int64_t>(devices) - 1));
    TESSERA_TRY_VOID(row.whole("to", to, 0, static_cast<int64_t>(devices) - 1));
    if (from == to) return row.error("to", "expected another device than 'from'");
    const auto p = static_cast<size_t>(from);
    const auto q = static_cast<size_t>(to);
    TESSERA_TRY_VOID(read_link(row, delay[p][q], bandwidth[p][q]));
    delay[q][p] = delay[p][q];
    bandwidth[q][p] = bandwidth[p][q];
  }
  return {};
}

}  // namespace tessera::published
