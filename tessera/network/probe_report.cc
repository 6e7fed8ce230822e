// Writes what a probe found: as a network, in lines for people, and as JSON.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tessera/base/json_text.h"
#include "tessera/base/statistics.h"
#include "tessera/base/text.h"
#include "tessera/base/units.h"
#include "tessera/network/probe.h"

namespace tessera::network {
namespace {

constexpr double kSameCard = 0.1;     // relative difference of cards that are taken for equal
constexpr double kOtherPath = 1.5;    // factor between latencies of ways that are not alike
constexpr double kLeastPath = 20e-6;  // seconds; smaller differences are noise
constexpr double kUnsure = 0.9;       // a probability below is said

size_t rack_count(const Inference& found) {
  return found.rack.empty()
             ? 0
             : static_cast<size_t>(*std::max_element(found.rack.begin(), found.rack.end()) + 1);
}

// Returns "200 Mb/s": rates of networks are read in bits.
std::string bits(double bytes_per_second) {
  const double value = 8 * bytes_per_second;
  const auto [unit, size] = value >= 1e9 ? std::pair("Gb/s", 1e9) : std::pair("Mb/s", 1e6);
  return fmt::format("{:.3g} {}", value / size, unit);
}

std::string time_text(double seconds) {
  return seconds < 1e-3 ? fmt::format("{:.3g} us", seconds * 1e6)
                        : fmt::format("{:.3g} ms", seconds * 1e3);
}

std::string with_error(const Estimate& one) {
  if (!one.reached) return fmt::format("at least {}", bits(one.rate));
  return fmt::format("{} +- {:.0f} %", bits(one.rate), std::max(1.0, 100 * one.error));
}

// Returns the rates of the cards, of which those that differ by less than a tenth are made equal.
std::vector<double> classes_of(const std::vector<Estimate>& cards) {
  std::vector<size_t> order(cards.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, {}, [&](size_t i) { return cards[i].rate; });
  std::vector<double> out(cards.size());
  for (size_t first = 0; first < order.size();) {
    size_t end = first;
    std::vector<double> rates;
    while (end < order.size() &&
           cards[order[end]].rate <= (1 + kSameCard) * cards[order[first]].rate)
      rates.push_back(cards[order[end++]].rate);
    for (size_t i = first; i < end; ++i) out[order[i]] = median(rates);
    first = end;
  }
  return out;
}

// Rounds to three digits: more is not known, and files are read by people.
double rounded(double value) { return parse_double(fmt::format("{:.3g}", value)).value_or(value); }

std::string names_of(const std::vector<int64_t>& machines, const std::vector<std::string>& names) {
  std::vector<std::string> out;
  for (const int64_t machine : machines) out.push_back(names[static_cast<size_t>(machine)]);
  return join(out, " ");
}

std::vector<std::vector<int64_t>> members_of(const Inference& found) {
  std::vector<std::vector<int64_t>> out(rack_count(found));
  for (size_t i = 0; i < found.rack.size(); ++i)
    out[static_cast<size_t>(found.rack[i])].push_back(static_cast<int64_t>(i));
  return out;
}

// Latencies between racks: one for all that are alike, else paths.
void add_latencies(const Inference& found, double card, Network& out) {
  const size_t racks = rack_count(found);
  std::vector<double> between;
  for (size_t a = 0; a < racks; ++a) {
    for (size_t b = a + 1; b < racks; ++b) {
      if (found.cross_latency_s[a * racks + b] > 0)
        between.push_back(found.cross_latency_s[a * racks + b]);
    }
  }
  if (between.empty()) return;
  const auto beyond = [&](size_t a, size_t b, double latency) {
    return std::max(
        0.0, rounded(latency - card - out.switches[a].latency_s - out.switches[b].latency_s));
  };
  NetworkSwitch& core = out.switches.back();
  core.latency_s = std::max(0.0, rounded(median(between) - card));
  const auto [least, most] = std::minmax_element(between.begin(), between.end());
  if (*most < kOtherPath * *least || *most - *least < kLeastPath) return;
  for (size_t a = 0; a < racks; ++a) {
    for (size_t b = a + 1; b < racks; ++b) {
      const double latency = found.cross_latency_s[a * racks + b];
      if (latency > 0) {
        out.paths.push_back(
            {{out.switches[a].name, out.switches[b].name}, 0, beyond(a, b, latency)});
      }
    }
  }
}

}  // namespace

Network network_of(const Inference& found, const std::vector<std::string>& names) {
  Network out;
  const size_t racks = rack_count(found);
  double card = 0;  // latency that every message has
  for (const double latency : found.rack_latency_s) {
    if (latency > 0 && (card == 0 || latency < card)) card = latency;
  }
  card = rounded(card);
  for (size_t g = 0; g < racks; ++g) {
    NetworkSwitch& one = out.switches.emplace_back();
    one.name = fmt::format("rack{}", g);
    if (found.rack_latency_s[g] > 0)
      one.latency_s = std::max(0.0, rounded(found.rack_latency_s[g] - card));
    if (racks == 1) continue;
    one.above = "core";
    if (!found.uplinks[g].reached) continue;
    one.uplink = rounded(found.uplinks[g].rate);
    one.uplink_error = rounded(found.uplinks[g].error);
  }
  if (racks > 1) {
    out.switches.emplace_back().name = "core";
    add_latencies(found, card, out);
  }
  const std::vector<double> rates = classes_of(found.cards);
  for (size_t i = 0; i < names.size(); ++i) {
    NetworkNode& node = out.nodes.emplace_back();
    node.name = names[i];
    node.below = fmt::format("rack{}", found.rack[i]);
    node.rate = rounded(rates[i]);
    node.rate_error = rounded(found.cards[i].error);
    node.latency_s = card;
  }
  return out;
}

std::string to_text(const Inference& found, const std::vector<std::string>& names) {
  const auto members = members_of(found);
  const size_t racks = members.size();
  std::string out =
      racks == 1
          ? fmt::format("{} machines below one switch: no pairs share a way up that limits them",
                        names.size())
          : fmt::format("{} machines in {} racks", names.size(), racks);
  out += fmt::format(", probability {:.3g}; rates differ from the model by {:.1f} % (median)\n",
                     found.probability, 100 * found.misfit);
  for (size_t g = 0; g < racks; ++g) {
    out += fmt::format("rack{}: {}", g, names_of(members[g], names));
    if (racks > 1) {
      out += found.uplinks[g].reached ? fmt::format(", way up {}", with_error(found.uplinks[g]))
                                      : ", way up not limiting";
    }
    if (found.rack_latency_s[g] > 0)
      out += fmt::format(", {} inside", time_text(found.rack_latency_s[g]));
    out += "\n";
  }
  std::vector<double> across;
  for (size_t a = 0; a < racks; ++a) {
    for (size_t b = a + 1; b < racks; ++b) {
      if (found.cross_latency_s[a * racks + b] > 0)
        across.push_back(found.cross_latency_s[a * racks + b]);
    }
  }
  if (!across.empty()) out += fmt::format("across racks: {}\n", time_text(median(across)));
  const std::vector<double> rates = classes_of(found.cards);
  std::vector<double> sorted = rates;
  std::ranges::sort(sorted);
  sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
  for (const double rate : sorted) {
    std::vector<int64_t> who;
    std::vector<double> errors;
    for (size_t i = 0; i < rates.size(); ++i) {
      if (rates[i] != rate) continue;
      who.push_back(static_cast<int64_t>(i));
      errors.push_back(found.cards[i].error);
    }
    out += fmt::format("network cards of {} +- {:.0f} %: {}\n", bits(rate),
                       std::max(1.0, 100 * median(errors)), names_of(who, names));
  }
  for (const int64_t i : found.slow_machines) {
    out += fmt::format("slow machine: {}, whose card carries {}\n", names[static_cast<size_t>(i)],
                       with_error(found.cards[static_cast<size_t>(i)]));
  }
  for (const int64_t g : found.slow_racks) {
    out += fmt::format("slow link: the way up of rack{} carries {}\n", g,
                       with_error(found.uplinks[static_cast<size_t>(g)]));
  }
  for (const int64_t i : found.late_machines) {
    out += fmt::format("late machine: {} answers more than twice as late as the others\n",
                       names[static_cast<size_t>(i)]);
  }
  for (size_t i = 0; i < found.sure_of.size(); ++i) {
    if (found.sure_of[i] < kUnsure) {
      out += fmt::format("not sure: {} is in rack{} with probability {:.2f}\n", names[i],
                         found.rack[i], found.sure_of[i]);
    }
  }
  return out;
}

std::string to_json(const Inference& found, const ProbeMeasurements& measured,
                    const std::vector<std::string>& names) {
  using Json = nlohmann::ordered_json;
  const auto megabits = [](double rate) { return std::round(8e-4 * rate) / 100; };
  Json out;
  out["machines"] = names;
  Json& clusters = out["clusters"] = Json::array();
  for (const auto& members : members_of(found)) {
    Json& one = clusters.emplace_back(Json::array());
    for (const int64_t machine : members) one.push_back(names[static_cast<size_t>(machine)]);
  }
  out["probability"] = found.probability;
  out["sure_of"] = found.sure_of;
  out["misfit"] = found.misfit;
  const auto put = [&](const char* rates, const char* errors,
                       const std::vector<Estimate>& estimates) {
    out[rates] = Json::array();
    out[errors] = Json::array();
    for (const Estimate& one : estimates) {
      out[rates].push_back(one.reached ? Json(megabits(one.rate)) : Json());
      out[errors].push_back(one.reached ? Json(one.error) : Json());
    }
  };
  put("uplink_Mbps", "uplink_error", found.uplinks);
  put("card_Mbps", "card_error", found.cards);
  Json& latencies = out["latency_us"] = Json::array();
  for (int64_t i = 0; i < measured.machines; ++i) {
    Json& row = latencies.emplace_back(Json::array());
    for (int64_t j = 0; j < measured.machines; ++j)
      row.push_back(std::round(1e8 * measured.latency(i, j)) / 100);
  }
  const auto list = [&](const std::vector<int64_t>& machines) {
    Json some = Json::array();
    for (const int64_t machine : machines) some.push_back(names[static_cast<size_t>(machine)]);
    return some;
  };
  out["slow_machines"] = list(found.slow_machines);
  out["late_machines"] = list(found.late_machines);
  out["slow_clusters"] = found.slow_racks;
  Json& rounds = out["rounds"] = Json::array();
  for (const ProbeRound& round : measured.rounds) {
    Json& pairs = rounds.emplace_back(Json::array());
    for (const ProbeFlow& flow : round) pairs.push_back({flow.a, flow.b, megabits(flow.rate)});
  }
  return dumped(out, 1) + "\n";
}

}  // namespace tessera::network
