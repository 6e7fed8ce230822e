#include "tessera/cli/with_planning/prices.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "tessera/base/text.h"
#include "tessera/base/units.h"

namespace tessera::cli {
namespace {

constexpr double kMostUsd = 1e6, kMostPercent = 1e6;
constexpr double kUsualWithin = 1.1;

// Sets how long a step may take.
Status read_within(const std::string& text, Objective& out) {
  if (text.ends_with('%')) {
    const auto percent = parse_double(trim(std::string_view(text).substr(0, text.size() - 1)));
    if (percent && *percent >= 0 && *percent <= kMostPercent) {
      out.within = 1 + *percent / 100;
      return {};
    }
  } else if (const auto seconds = parse_quantity(text, Quantity::kSeconds);
             seconds && *seconds > 0) {
    out.deadline_s = *seconds;
    return {};
  }
  return invalid_input(fmt::format(
      "plan: --within: expected how much longer than the fastest a step may take, as 10%, or how "
      "long, as '1.5 s', found '{}'",
      text));
}

}  // namespace

Result<std::vector<double>> read_prices(const std::vector<std::string>& prices,
                                        const std::vector<std::string>& types) {
  std::vector<double> out;
  if (prices.empty()) return out;
  out.assign(types.size(), -1);
  for (const std::string& price : prices) {
    const size_t equals = price.find('=');
    const std::string type = equals == std::string::npos ? "" : price.substr(0, equals);
    std::string number = equals == std::string::npos ? price : price.substr(equals + 1);
    if (number.ends_with("USD/h")) number = std::string(trim(number.substr(0, number.size() - 5)));
    const auto usd = parse_double(number);
    const auto at = std::find(types.begin(), types.end(), type);
    const bool is_known = at != types.end() || (type.empty() && out.size() == 1);
    if (!usd || !(*usd >= 0 && *usd <= kMostUsd) || !is_known) {
      return invalid_input(fmt::format(
          "--price: expected TYPE=USD an hour, as {}=2.5, where the types are {}, found '{}'",
          types.front(), join(types, ", "), price));
    }
    double& own = out[type.empty() ? 0 : static_cast<size_t>(at - types.begin())];
    if (own >= 0) {
      return invalid_input(fmt::format(
          "--price: expected one price for each type, found a second one, '{}'", price));
    }
    own = *usd;
  }
  for (size_t i = 0; i < out.size(); ++i) {
    if (out[i] < 0) {
      return invalid_input(
          fmt::format("--price: expected a price for each type, found none for '{}'", types[i]));
    }
  }
  return out;
}

Result<Objective> read_objective(const ObjectiveOptions& options, const Cluster& cluster) {
  Objective out;
  const auto name = std::find(goal_names().begin(), goal_names().end(), options.goal);
  out.goal = static_cast<Goal>(name - goal_names().begin());
  std::vector<std::string> types;
  for (const ClusterPart& part : cluster.parts) {
    if (std::find(types.begin(), types.end(), part.type.name) == types.end())
      types.push_back(part.type.name);
  }
  TESSERA_TRY(const std::vector<double> prices, read_prices(options.prices, types));
  for (const ClusterPart& part : cluster.parts) {
    const auto type = std::find(types.begin(), types.end(), part.type.name);
    if (!prices.empty())
      out.usd_an_hour.push_back(prices[static_cast<size_t>(type - types.begin())]);
  }
  if (out.goal == Goal::kMoney && prices.empty()) {
    return invalid_input(fmt::format(
        "plan: --objective money: expected --price {}=USD an hour of a device{}, found none",
        types.front(), types.size() > 1 ? " for each type" : ""));
  }
  if (!options.within.empty()) {
    if (out.goal == Goal::kTime) {
      return invalid_input(
          fmt::format("plan: --within: expected --objective money, devices or memory beside it, "
                      "found '{}' with "
                      "time",
                      options.within));
    }
    TESSERA_TRY_VOID(read_within(options.within, out));
  } else if (out.goal == Goal::kDevices || out.goal == Goal::kMemory) {
    out.within = kUsualWithin;
  }
  return out;
}

}  // namespace tessera::cli
