// The record of a run for the page. A long run is shown as means over neighbouring steps.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tessera/report/page_data.h"

namespace tessera {
namespace page {
namespace {

using Step = RunRecord::Step;
constexpr size_t kMostPoints = 4000;

OrderedJson number_json(double value) {
  return std::isfinite(value) ? OrderedJson(value) : OrderedJson();
}

// Returns the mean of a figure over steps [from, to); not a number if no step has one.
template <class Figure>
double mean(const std::vector<Step>& steps, size_t from, size_t to, const Figure& figure) {
  double sum = 0, count = 0;
  for (size_t i = from; i < to; ++i) {
    const double value = figure(steps[i]);
    if (!std::isfinite(value)) continue;
    sum += value;
    ++count;
  }
  return count > 0 ? sum / count : std::nan("");
}

// Returns the points of the curves: the last step of each, and the means of loss, throughput,
// time of a step and resident memory.
OrderedJson points_json(const std::vector<Step>& steps) {
  OrderedJson out = OrderedJson::array();
  const size_t each = (steps.size() + kMostPoints - 1) / kMostPoints;
  for (size_t from = 0; from < steps.size(); from += each) {
    const size_t to = std::min(steps.size(), from + each);
    const auto of = [&](auto figure) { return number_json(mean(steps, from, to, figure)); };
    out.push_back({steps[to - 1].step, of([](const Step& step) { return step.loss; }),
                   of([](const Step& step) { return step.tokens_per_s; }),
                   of([](const Step& step) { return step.step_time_s; }),
                   of([](const Step& step) { return static_cast<double>(step.resident_bytes); })});
  }
  return out;
}

struct Quality {
  const char* name;
  std::optional<double> Step::*value;
};
constexpr std::array<Quality, 4> kQualities = {{
    {"loss", &Step::eval_loss},
    {"normalised entropy", &Step::normalized_entropy},
    {"area under the ROC curve", &Step::auc},
    {"accuracy", &Step::accuracy},
}};

// Returns the figures that evaluations have, each with its pairs of step and value.
OrderedJson evaluations_json(const std::vector<Step>& steps) {
  OrderedJson out = OrderedJson::array();
  for (const Quality& quality : kQualities) {
    OrderedJson points = OrderedJson::array();
    for (const Step& step : steps) {
      if (const std::optional<double>& value = step.*quality.value)
        points.push_back({step.step, number_json(*value)});
    }
    if (!points.empty()) out.push_back({{"name", quality.name}, {"points", std::move(points)}});
  }
  return out;
}

OrderedJson starts_json(const RunRecord& record) {
  OrderedJson out = OrderedJson::array();
  for (const RunRecord::Start& start : record.starts) {
    out.push_back({{"step", start.first_step},
                   {"time", start.time},
                   {"plan", start.plan},
                   {"ranks", start.ranks}});
  }
  return out;
}

// Returns where the tables rest under the plan of the last start.
OrderedJson shares_json(const RunRecord& record) {
  constexpr size_t kMostShares = 2000;
  if (record.starts.empty() || record.starts.back().tables.empty()) return {};
  OrderedJson shares = OrderedJson::array();
  for (const RunRecord::TableShare& one : record.starts.back().tables) {
    if (shares.size() == kMostShares) break;
    shares.push_back({one.table, one.rank, one.first_row, one.rows, one.first_column, one.columns,
                      one.tier, one.bytes, one.state_bytes});
  }
  return {{"pieces", record.starts.back().tables.size()}, {"shares", std::move(shares)}};
}

OrderedJson caches_json(const RunRecord& record) {
  OrderedJson out = OrderedJson::array();
  for (const RunRecord::RowCache& one : record.row_caches) {
    out.push_back({one.table, one.policy, one.rows, one.slots, one.hit_rate, one.rows_in,
                   one.rows_out, one.overflow_rows});
  }
  return out;
}

}  // namespace

OrderedJson record_json(const RunRecord& record) {
  const Step& last = record.steps.back();
  const size_t steps = record.steps.size();
  double seconds = 0;
  for (const Step& step : record.steps) {
    if (std::isfinite(step.step_time_s)) seconds += step.step_time_s;
  }
  return {{"verdict", record_verdict(record)},
          {"steps", steps},
          {"first_step", record.steps.front().step},
          {"last_step", last.step},
          {"steps_a_point", (steps + kMostPoints - 1) / kMostPoints},
          {"last_loss", number_json(last.loss)},
          {"mean_tokens_per_s",
           number_json(mean(record.steps, 0, steps, [](const Step& s) { return s.tokens_per_s; }))},
          {"seconds", seconds},
          {"memory_bytes", last.memory_bytes},
          {"points", points_json(record.steps)},
          {"evaluations", evaluations_json(record.steps)},
          {"starts", starts_json(record)},
          {"tables", shares_json(record)},
          {"caches", caches_json(record)}};
}

OrderedJson watch_json(const WatchReport& watch, const std::string& predicted_for) {
  constexpr size_t kMostRanks = 256;
  OrderedJson ranks = OrderedJson::array();
  for (const RankReport& rank : watch.ranks) {
    if (ranks.size() == kMostRanks) break;
    const auto predicted = [&](double RankPrediction::*member) {
      return rank.predicted ? OrderedJson(*rank.predicted.*member) : OrderedJson();
    };
    ranks.push_back({rank.rank, rank.step_s, rank.work_s, predicted(&RankPrediction::work_s),
                     rank.transfer_s, predicted(&RankPrediction::transfer_s), rank.wait_s,
                     predicted(&RankPrediction::wait_s), rank.work.ratio});
  }
  return {{"steps", watch.steps},         {"first_step", watch.first_step},
          {"last_step", watch.last_step}, {"predicted_for", predicted_for},
          {"slow", watch.slow},           {"said", watch_sentences(watch)},
          {"count", watch.ranks.size()},  {"ranks", std::move(ranks)}};
}

}  // namespace page

namespace {

// Returns the number with commas between thousands: "12,345".
std::string thousands(int64_t value) {
  std::string digits = std::to_string(value);
  for (size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, ",");
  return digits;
}

}  // namespace

std::string record_verdict(const RunRecord& record) {
  std::vector<double> losses;
  for (const RunRecord::Step& step : record.steps) {
    if (std::isfinite(step.loss)) losses.push_back(step.loss);
  }
  const auto steps = std::ssize(record.steps);
  const auto restarts = std::max<int64_t>(0, std::ssize(record.starts) - 1);
  const std::string counted =
      fmt::format("{} step{}, {} restart{}", thousands(steps), steps == 1 ? "" : "s", restarts,
                  restarts == 1 ? "" : "s");
  if (losses.empty()) return counted + ", no finite loss";
  return fmt::format("Loss {:.4g} to {:.4g} in {}", losses.front(), losses.back(), counted);
}

}  // namespace tessera
