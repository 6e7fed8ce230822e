// Makes the page's data. A page may have a hundred thousand events behind it, so names are
// collected in one list, numbers are written as short arrays, and lists are cut to a bound
// (page_data.h). The times of bars are in whole nanoseconds.
#include "tessera/report/page_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tessera/base/json_text.h"
#include "tessera/report/report.h"
#include "tessera/report/verdict.h"
#include "tessera/simulate/traffic_json.h"

namespace tessera {
namespace page {

int64_t nanoseconds(double seconds) { return std::llround(seconds * 1e9); }

}  // namespace page

namespace {

using page::Detail;
using page::OrderedJson;

// Returns the time of streams by class of instruction: the mean over all ranks.
OrderedJson costs_of(const Simulation& simulation) {
  std::map<int32_t, double> ranks;
  double all = 0, total = 0;
  for (const RankResult& role : simulation.roles) {
    ranks[role.representative] = static_cast<double>(role.ranks);
    all += static_cast<double>(role.ranks);
  }
  std::map<std::string, double> sums;
  for (const TraceEvent& event : simulation.events) {
    if (event.lane == Lane::kHost) continue;
    const auto found = ranks.find(event.rank);
    const double share = (found == ranks.end() ? 1 : found->second) / std::max(all, 1.0);
    const double seconds = (event.end_s - event.start_s) * share;
    sums[simulation.labels[static_cast<size_t>(event.what)]] += seconds;
    total += seconds;
  }
  std::vector<std::pair<std::string, double>> list(sums.begin(), sums.end());
  std::stable_sort(list.begin(), list.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  OrderedJson out = OrderedJson::array();
  for (const auto& [name, seconds] : list)
    out.push_back({name, seconds, total > 0 ? seconds / total : 0});
  return out;
}

OrderedJson roles_json(const Simulation& simulation, Detail detail) {
  // The ranks share the bounds on samples, but each has enough to be drawn.
  constexpr int64_t kFewestSamples = 100;
  const auto roles = std::max<int64_t>(1, std::ssize(simulation.roles));
  detail.samples = std::max(std::min(detail.samples, kFewestSamples),
                            std::min(detail.samples, 4 * detail.samples / roles));
  OrderedJson out = OrderedJson::array();
  for (const RankResult& role : simulation.roles) {
    out.push_back({{"representative", role.representative},
                   {"ranks", role.ranks},
                   {"stages", role.stages},
                   {"spent_s", role.spent_s},
                   {"memory", page::memory_json(role.memory, detail)},
                   {"traffic", traffic_json(role.traffic)}});
  }
  return out;
}

int64_t peak_bytes(const Simulation& simulation) {
  int64_t peak = 0;
  for (const RankResult& role : simulation.roles) peak = std::max(peak, role.memory.total_bytes());
  return peak;
}

// ---- summary: of the rank that has most, or that spends most
OrderedJson summary_json(const Simulation& simulation, int64_t capacity) {
  int64_t sent = 0;
  std::array<double, kSpent> spent{};
  double ranks = 0;
  for (const RankResult& role : simulation.roles) {
    int64_t bytes = 0;
    for (const TrafficRow& row : role.traffic) bytes += row.bytes;
    sent = std::max(sent, bytes);
    for (size_t i = 0; i < kSpent; ++i)
      spent[i] += role.spent_s[i] * static_cast<double>(role.ranks);
    ranks += static_cast<double>(role.ranks);
  }
  for (double& seconds : spent) seconds /= std::max(ranks, 1.0);
  const MemoryVerdict verdict = memory_verdict(peak_bytes(simulation), capacity);
  return {
      {"verdict",
       {{"state", state_name(verdict.state)}, {"text", verdict.text}, {"bytes", verdict.bytes}}},
      {"step_time_s", simulation.step_time_s},
      {"uncertainty", simulation.uncertainty},
      {"tokens_per_s", simulation.tokens_per_s()},
      {"flops_per_device", simulation.flops_per_device()},
      {"mfu", simulation.peak_flops > 0 ? simulation.mfu() : 0},
      {"peak_memory_bytes", peak_bytes(simulation)},
      {"capacity_bytes", capacity},
      {"bytes_sent", sent},
      {"ranks", simulation.ranks},
      {"spent_s", spent}};
}

// ---- embedding tables
OrderedJson tables_json(const std::vector<TableLoad>& loads, const Detail& detail) {
  OrderedJson shares = OrderedJson::array(), ranks = OrderedJson::array();
  int64_t pieces = 0;
  for (const TableLoad& load : loads) {
    int64_t bytes = 0, state_bytes = 0;
    for (const TableShare& share : load.shares) {
      bytes += share.bytes;
      state_bytes += share.state_bytes;
      if (pieces++ >= detail.shares) continue;
      shares.push_back({share.table, share.rank, share.rows.begin, share.rows.size,
                        share.columns.begin, share.columns.size, tier_name(share.tier), share.bytes,
                        share.state_bytes});
    }
    ranks.push_back({load.rank, load.ranks, load.shares.size(), bytes, state_bytes, load.rows_read,
                     load.bytes_read});
  }
  return {{"pieces", pieces}, {"shares", std::move(shares)}, {"loads", std::move(ranks)}};
}

// Figures from the programs of a plan. They take long, and do not depend on the detail.
struct FromPrograms {
  CommunicationMatrix matrix;
  std::vector<TableLoad> loads;
};

OrderedJson run_json(const Report& report, const ReportRun& item, const FromPrograms& from,
                     const Detail& detail) {
  const Simulation& simulation = item.simulation;
  OrderedJson run{{"name", item.name},
                  {"plan_text", item.plan_text},
                  {"summary", summary_json(simulation, report.capacity_bytes)},
                  {"end_ns", page::nanoseconds(simulation.step_time_s)},
                  {"roles", roles_json(simulation, detail)},
                  {"costs", costs_of(simulation)}};
  page::add_path(simulation, detail, run);
  page::add_timeline(simulation, detail, run);
  OrderedJson cells = OrderedJson::array();
  for (const auto& cell : from.matrix.cells) cells.push_back({cell.from, cell.to, cell.bytes});
  run["matrix"] = {
      {"labels", from.matrix.labels}, {"cells", std::move(cells)}, {"note", from.matrix.note}};
  page::add_ops(*item.lowering, detail, run);
  run["tables"] = from.loads.empty() ? OrderedJson() : tables_json(from.loads, detail);
  return run;
}

// ---- throughput against memory
OrderedJson point_json(const PlanCurve::Point& point, int64_t batch) {
  return {{"choice", point.choice},
          {"sequences_per_s", static_cast<double>(batch) / point.step_s},
          {"step_s", point.step_s},
          {"memory_bytes", point.memory_bytes},
          {"fits", point.fits}};
}

OrderedJson curve_json(const PlanCurve& curve) {
  OrderedJson estimated = OrderedJson::array(), simulated = OrderedJson::array();
  for (const PlanCurve::Point& point : curve.estimated)
    estimated.push_back(point_json(point, curve.batch));
  for (const PlanCurve::Program& program : curve.simulated) {
    OrderedJson item = point_json(program, curve.batch);
    item["estimate"] = point_json(program.estimate, curve.batch);
    simulated.push_back(std::move(item));
  }
  return {{"limit_bytes", curve.limit_bytes},
          {"planner", curve.planner},
          {"estimated", std::move(estimated)},
          {"simulated", std::move(simulated)},
          {"best", curve.best ? OrderedJson(*curve.best) : OrderedJson()},
          {"refused", curve.refused}};
}

// Returns the index of the fastest plan that fits; if none fits, of the one that needs least.
size_t best_run(const Report& report) {
  const auto rank_of = [&](const ReportRun& run) {
    const int64_t peak = peak_bytes(run.simulation);
    const bool fits = report.capacity_bytes <= 0 || peak <= report.capacity_bytes;
    return std::pair(!fits, fits ? run.simulation.step_time_s : static_cast<double>(peak));
  };
  size_t best = 0;
  for (size_t i = 1; i < report.runs.size(); ++i) {
    if (rank_of(report.runs[i]) < rank_of(report.runs[best])) best = i;
  }
  return best;
}

Result<std::string> data_text(const Report& report, const std::vector<FromPrograms>& found,
                              double factor) {
  const Detail detail = Detail::of(std::max<int64_t>(1, std::ssize(report.runs)), factor);
  OrderedJson spent = OrderedJson::array(), runs = OrderedJson::array();
  for (size_t i = 0; i < kSpent; ++i) spent.push_back(spent_name(static_cast<Spent>(i)));
  for (size_t i = 0; i < report.runs.size(); ++i)
    runs.push_back(run_json(report, report.runs[i], found[i], detail));
  return dumped(
      OrderedJson{{"title", report.title},
                  {"subtitle", report.subtitle},
                  {"model", report.model},
                  {"spent", std::move(spent)},
                  {"runs", std::move(runs)},
                  {"best_run", best_run(report)},
                  {"curve", report.curve ? curve_json(*report.curve) : OrderedJson()},
                  {"record", report.record ? page::record_json(*report.record) : OrderedJson()},
                  {"watch", report.watch ? page::watch_json(*report.watch, report.predicted_for)
                                         : OrderedJson()}});
}

}  // namespace

Result<std::string> report_data(const Report& report) {
  std::vector<FromPrograms> found;
  for (const ReportRun& item : report.runs) {
    TESSERA_TRY(CommunicationMatrix matrix, communication_matrix(*item.lowering));
    TESSERA_TRY(std::vector<TableLoad> loads, table_loads(*item.lowering, item.tables));
    found.push_back({std::move(matrix), std::move(loads)});
  }
  constexpr double kLeastFactor = 1.0 / 64;
  for (double factor = 1;; factor /= 2) {
    TESSERA_TRY(std::string data, data_text(report, found, factor));
    if (std::ssize(data) <= report.most_data_bytes || factor <= kLeastFactor) return data;
  }
}

std::string verdict_text(const Report& report) {
  if (report.record) return record_verdict(*report.record);
  if (report.runs.empty()) return "";
  const auto verdict_of = [&](const ReportRun& run) {
    return memory_verdict(peak_bytes(run.simulation), report.capacity_bytes);
  };
  const ReportRun& best = report.runs[best_run(report)];
  if (report.runs.size() == 1) return verdict_of(best).text;
  const auto fitting = std::count_if(report.runs.begin(), report.runs.end(), [&](const auto& run) {
    return verdict_of(run).state != MemoryVerdict::State::kTooLarge;
  });
  if (fitting == 0) {
    return fmt::format("None of the {} plans fits; {} lacks least: {}", report.runs.size(),
                       best.name, gib_text(verdict_of(best).bytes));
  }
  return fitting == 1 ? fmt::format("1 of {} plans fits: {}", report.runs.size(), best.name)
                      : fmt::format("{} of {} plans fit; the fastest of them is {}", fitting,
                                    report.runs.size(), best.name);
}

}  // namespace tessera
