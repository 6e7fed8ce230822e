#include "tessera/predict/reality.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "tessera/base/json_text.h"
#include "tessera/base/statistics.h"
#include "tessera/base/text.h"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kTie = 0.02;  // relative difference below which measured times count as equal

double measured(const MeasuredPair& pair) { return median(pair.runs); }
double error(const MeasuredPair& pair) { return pair.predicted / measured(pair) - 1; }
double spread(const MeasuredPair& pair) {
  const auto [least, most] = std::minmax_element(pair.runs.begin(), pair.runs.end());
  return (*most - *least) / measured(pair);
}
bool exact(const MeasuredPair& pair) {
  return pair.bytes == pair.predicted_bytes && pair.memory == pair.predicted_memory;
}

struct Agreement {
  int64_t agreeing = 0, pairs = 0;
  double tau() const {
    return pairs == 0 ? 1 : static_cast<double>(agreeing) / static_cast<double>(pairs);
  }
};

Agreement agreement(const std::vector<MeasuredPair>& pairs, bool within_models) {
  Agreement found;
  for (size_t i = 0; i < pairs.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      const MeasuredPair &a = pairs[i], &b = pairs[j];
      if (within_models && a.model != b.model) continue;
      const double difference = measured(a) - measured(b);
      if (std::abs(difference) < kTie * std::max(measured(a), measured(b))) continue;
      ++found.pairs;
      found.agreeing += difference * (a.predicted - b.predicted) > 0 ? 1 : -1;
    }
  }
  return found;
}

std::vector<std::pair<std::string, std::string>> texts(const Json& object) {
  std::vector<std::pair<std::string, std::string>> out;
  for (const auto& [name, value] : object.items()) out.emplace_back(name, value.get<std::string>());
  return out;
}

MeasuredPair read_pair(const Json& json) {
  MeasuredPair pair;
  pair.model = json.at("model").get<std::string>();
  pair.plan = json.at("plan").get<std::string>();
  pair.transport = json.at("transport").get<std::string>();
  pair.ranks = json.at("ranks").get<int64_t>();
  pair.runs = json.at("runs").get<std::vector<double>>();
  const Json& predicted = json.at("predicted");
  pair.predicted = predicted.at("step_time_s").get<double>();
  pair.predicted_bytes = predicted.at("bytes").get<int64_t>();
  pair.predicted_memory = predicted.at("memory").get<int64_t>();
  pair.bytes = json.at("bytes").get<int64_t>();
  pair.memory = json.at("memory").get<int64_t>();
  return pair;
}

std::string row_of(const MeasuredPair& pair) {
  constexpr double kMebi = 1024 * 1024;
  return fmt::format("| {} | `{}` | {} {} | {:.1f} | {:.1f} | {} | {} | {:.2f} | {:.1f} | {} |\n",
                     pair.model, pair.plan, pair.ranks, pair.transport, 1e3 * measured(pair),
                     1e3 * pair.predicted, signed_percent(error(pair)), percent(spread(pair), 0),
                     static_cast<double>(pair.bytes) / kMebi,
                     static_cast<double>(pair.memory) / kMebi, exact(pair) ? "yes" : "**no**");
}

}  // namespace

Result<Reality> parse_reality(std::string_view json, std::string_view file) {
  Reality reality;
  try {
    const Json root = Json::parse(json);
    reality.date = root.at("date").get<std::string>();
    reality.command = root.at("command").get<std::string>();
    reality.title = root.at("title").get<std::string>();
    reality.method = root.at("method").get<std::string>();
    reality.target_error = root.at("target_error").get<double>();
    reality.target_tau = root.at("target_tau").get<double>();
    reality.machine = texts(root.at("machine"));
    reality.models = texts(root.at("models"));
    for (const Json& one : root.at("pairs")) {
      if (one.at("runs").empty() || !one.at("error").get<std::string>().empty()) {
        ++reality.failed;
        continue;
      }
      reality.pairs.push_back(read_pair(one));
    }
  } catch (const Json::exception& found) {
    return invalid_input(fmt::format(
        "{}: expected a file of benchmarks/run_reality.py or run_slow_links.py, found: {}", file,
        found.what()));
  }
  for (const MeasuredPair& pair : reality.pairs) {
    if (*std::min_element(pair.runs.begin(), pair.runs.end()) > 0 && pair.predicted > 0) continue;
    return invalid_input(fmt::format("{}: expected step times above 0 s, found others at {}, {}",
                                     file, pair.model, pair.plan));
  }
  if (reality.pairs.empty()) {
    return invalid_input(fmt::format("{}: expected a measured pair, found none", file));
  }
  return reality;
}

RealityScores score(const Reality& reality) {
  RealityScores scores;
  std::vector<double> errors, spreads;
  for (const MeasuredPair& pair : reality.pairs) {
    errors.push_back(std::abs(error(pair)));
    spreads.push_back(spread(pair));
    scores.mean_error += errors.back();
    scores.bias += error(pair);
    scores.worst_error = std::max(scores.worst_error, errors.back());
    scores.exact += exact(pair) ? 1 : 0;
  }
  const double pairs = static_cast<double>(reality.pairs.size());
  scores.mean_error /= pairs;
  scores.bias /= pairs;
  scores.median_error = median(errors);
  scores.spread = median(spreads);
  scores.tau = agreement(reality.pairs, false).tau();
  scores.tau_within_models = agreement(reality.pairs, true).tau();
  return scores;
}

std::string reality_markdown(const Reality& reality) {
  const RealityScores found = score(reality);
  std::string out = fmt::format(
      "## {}\nMeasured on {} by `{}`: {} A run gives the median of its steps, a pair the median of "
      "its runs; spread: largest less smallest run, of the median. Exact: bytes sent by all ranks "
      "and peak of the arena are as predicted.\n\n",
      reality.title, reality.date, reality.command, reality.method);
  out += fmt::format(
      "| | found | target |\n|---|---|---|\n| median error | {} | {} |\n| mean error, worst, "
      "bias "
      "| {}, {}, {} | |\n| Kendall's tau (times within 2 % are not counted) | {:.2f} | {:.2f} |\n| "
      "the same, among plans of a model | {:.2f} | |\n| bytes and memory exact | {} of {} | all "
      "|\n| "
      "median spread of the runs | {} | |\n",
      percent(found.median_error), percent(reality.target_error, 0), percent(found.mean_error),
      percent(found.worst_error), signed_percent(found.bias), found.tau, reality.target_tau,
      found.tau_within_models, found.exact, reality.pairs.size(), percent(found.spread, 0));
  if (reality.failed > 0)
    out += fmt::format("| could not be measured | {} | 0 |\n", reality.failed);
  out +=
      "\n| model | plan | ranks | measured, ms | predicted, ms | error | spread | MiB sent | MiB "
      "arena | exact |\n|---|---|---|--:|--:|--:|--:|--:|--:|---|\n";
  for (const MeasuredPair& pair : reality.pairs) out += row_of(pair);
  out += "\nModels:\n";
  for (const auto& [name, model] : reality.models) out += fmt::format("- {}: `{}`\n", name, model);
  out += "\nMachine:\n";
  for (const auto& [name, value] : reality.machine) out += fmt::format("- {}: {}\n", name, value);
  return out;
}

std::string reality_json(const Reality& reality) {
  const RealityScores found = score(reality);
  return dumped(Json{{"pairs", reality.pairs.size()},
                     {"failed", reality.failed},
                     {"exact", found.exact},
                     {"median_error", found.median_error},
                     {"mean_error", found.mean_error},
                     {"worst_error", found.worst_error},
                     {"bias", found.bias},
                     {"tau", found.tau},
                     {"tau_within_models", found.tau_within_models},
                     {"spread", found.spread}},
                1) +
         "\n";
}

}  // namespace tessera
