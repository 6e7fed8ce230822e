// Makes the page's data. A page may have a hundred thousand bars, so names are collected in one
// list and numbers are written as short arrays. The times of bars are in whole nanoseconds.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <tuple>

#include "tessera/base/json_text.h"
#include "tessera/report/report.h"
#include "tessera/simulate/traffic_json.h"

namespace tessera {
namespace {

using OrderedJson = nlohmann::ordered_json;

int64_t nanoseconds(double seconds) { return std::llround(seconds * 1e9); }

class Labels {
 public:
  int32_t operator()(const std::string& text) {
    const auto [found, is_new] = index_.emplace(text, static_cast<int32_t>(list_.size()));
    if (is_new) list_.push_back(text);
    return found->second;
  }
  const std::vector<std::string>& list() const { return list_; }

 private:
  std::map<std::string, int32_t> index_;
  std::vector<std::string> list_;
};

// ---- timeline
using Row = std::tuple<int32_t, Lane, int32_t>;  // rank, lane, channel

std::map<Row, int32_t> rows_of(const Simulation& simulation) {
  std::map<Row, int32_t> rows;
  for (const TraceEvent& event : simulation.events) {
    if (event.lane != Lane::kHost) rows.emplace(Row{event.rank, event.lane, event.channel}, 0);
  }
  int32_t next = 0;
  for (auto& [row, index] : rows) index = next++;
  return rows;
}

// One run of a block on a compute lane: the time from its first instruction to the end of its last.
struct BlockRun {
  int64_t start = 0, end = 0;
};

void add_timeline(const Simulation& simulation, int64_t most_events, Labels& labels,
                  OrderedJson& run) {
  const std::map<Row, int32_t> rows = rows_of(simulation);
  OrderedJson names = OrderedJson::array();
  std::map<std::pair<int32_t, Lane>, int> lanes;
  for (const auto& [row, index] : rows) ++lanes[{std::get<0>(row), std::get<1>(row)}];
  for (const auto& [row, index] : rows) {
    const auto& [rank, lane, channel] = row;
    names.push_back(lanes.at({rank, lane}) > 1
                        ? fmt::format("rank {} {} {}", rank, lane_name(lane), channel)
                        : fmt::format("rank {} {}", rank, lane_name(lane)));
  }
  std::vector<const TraceEvent*> order;
  for (const TraceEvent& event : simulation.events) {
    if (event.lane != Lane::kHost) order.push_back(&event);
  }
  std::stable_sort(order.begin(), order.end(), [](const TraceEvent* a, const TraceEvent* b) {
    return a->start_s < b->start_s;
  });
  OrderedJson events = OrderedJson::array();
  std::map<std::tuple<int32_t, BlockRef, int64_t>, BlockRun> blocks;  // by row of the timeline
  int64_t capped = 0;
  for (const TraceEvent* event : order) {
    const int32_t row = rows.at({event->rank, event->lane, event->channel});
    const int64_t start = nanoseconds(event->start_s), end = nanoseconds(event->end_s);
    if (event->lane == Lane::kCompute) {
      auto [found, is_new] =
          blocks.emplace(std::tuple{row, event->block, event->micro_batch}, BlockRun{start, end});
      if (!is_new) found->second.end = std::max(found->second.end, end);
    }
    if (static_cast<int64_t>(events.size()) >= most_events) {
      if (capped == 0) capped = start;
      continue;
    }
    const std::string what = event->lane == Lane::kCompute
                                 ? std::string(block_name(event->block.kind))
                                 : std::string(lane_name(event->lane));
    events.push_back({row, start, end, labels(what),
                      labels(simulation.labels[static_cast<size_t>(event->label)]),
                      labels(simulation.labels[static_cast<size_t>(event->what)]),
                      labels(block_name(event->block)), event->micro_batch, event->instruction,
                      event->bytes});
  }
  std::vector<std::tuple<int64_t, int32_t, int64_t, int32_t, int64_t>> sorted;
  for (const auto& [key, block] : blocks) {
    const auto& [row, ref, micro_batch] = key;
    sorted.emplace_back(block.start, row, block.end, labels(block_name(ref)), micro_batch);
  }
  std::sort(sorted.begin(), sorted.end());
  OrderedJson runs = OrderedJson::array();
  for (const auto& [start, row, end, label, micro_batch] : sorted) {
    runs.push_back({row, start, end, label, micro_batch});
  }
  run["rows"] = std::move(names);
  run["events"] = std::move(events);
  run["blocks"] = std::move(runs);
  run["capped"] = capped;
}

// Sums the time of devices by class of instruction over all representatives of classes of ranks.
OrderedJson costs_of(const Simulation& simulation) {
  std::map<std::string, double> sums;
  double total = 0;
  for (const TraceEvent& event : simulation.events) {
    if (event.lane == Lane::kHost) continue;
    sums[simulation.labels[static_cast<size_t>(event.what)]] += event.end_s - event.start_s;
    total += event.end_s - event.start_s;
  }
  std::vector<std::pair<std::string, double>> list(sums.begin(), sums.end());
  std::stable_sort(list.begin(), list.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  OrderedJson out = OrderedJson::array();
  for (const auto& [name, seconds] : list) {
    out.push_back({name, seconds, total > 0 ? seconds / total : 0});
  }
  return out;
}

// ---- memory and ranks
// Thins a long timeline. Cuts it into 2,000 parts of equal length and keeps the highest and the
// last sample of each, because no screen shows more.
std::vector<MemorySample> thinned(const std::vector<MemorySample>& timeline) {
  constexpr size_t kParts = 2000;
  if (timeline.size() <= 2 * kParts) return timeline;
  const double part_s = timeline.back().time_s / static_cast<double>(kParts);
  std::vector<MemorySample> out;
  for (size_t from = 0, to = 0; from < timeline.size(); from = to) {
    const double part = std::floor(timeline[from].time_s / part_s);
    while (to < timeline.size() && std::floor(timeline[to].time_s / part_s) == part) ++to;
    size_t highest = from;
    for (size_t i = from; i < to; ++i) {
      if (timeline[i].bytes > timeline[highest].bytes) highest = i;
    }
    out.push_back(timeline[highest]);
    if (highest + 1 < to) out.push_back(timeline[to - 1]);
  }
  return out;
}

OrderedJson memory_json(const MemoryUse& memory) {
  OrderedJson timeline = OrderedJson::array(), at_peak = OrderedJson::array(),
              intervals = OrderedJson::array();
  for (const MemorySample& sample : thinned(memory.timeline)) {
    timeline.push_back({nanoseconds(sample.time_s), sample.bytes});
  }
  for (const LiveBuffer& live : memory.at_peak) {
    at_peak.push_back({live.name, live.bytes, live.what});
  }
  // Each buffer is listed once, with the starts and ends of all its copies.
  std::map<std::string, size_t> rows;
  for (const LiveInterval& live : memory.intervals) {
    const auto [row, fresh] = rows.try_emplace(live.name, intervals.size());
    if (fresh) intervals.push_back({live.name, live.bytes, live.what, OrderedJson::array()});
    OrderedJson& spans = intervals[row->second][3];
    spans.push_back(nanoseconds(live.start_s));
    spans.push_back(nanoseconds(live.end_s));
  }
  return {{"peak_bytes", memory.total_bytes()},
          {"peak_time_ns", nanoseconds(memory.peak_time_s)},
          {"timeline", std::move(timeline)},
          {"at_peak", std::move(at_peak)},
          {"intervals", std::move(intervals)}};
}

OrderedJson roles_json(const Simulation& simulation) {
  OrderedJson roles = OrderedJson::array();
  for (const RankResult& role : simulation.roles) {
    roles.push_back({{"representative", role.representative},
                     {"ranks", role.ranks},
                     {"stages", role.stages},
                     {"spent_s", role.spent_s},
                     {"memory", memory_json(role.memory)},
                     {"traffic", traffic_json(role.traffic)}});
  }
  return roles;
}

// ---- summary: of the rank that has most, or that spends most
OrderedJson summary_json(const Simulation& simulation, int64_t capacity) {
  int64_t peak = 0, sent = 0;
  std::array<double, kSpent> spent{};
  double ranks = 0;
  for (const RankResult& role : simulation.roles) {
    peak = std::max(peak, role.memory.total_bytes());
    int64_t bytes = 0;
    for (const TrafficRow& row : role.traffic) bytes += row.bytes;
    sent = std::max(sent, bytes);
    for (size_t i = 0; i < kSpent; ++i) {
      spent[i] += role.spent_s[i] * static_cast<double>(role.ranks);
    }
    ranks += static_cast<double>(role.ranks);
  }
  for (double& seconds : spent) seconds /= std::max(ranks, 1.0);
  return {{"step_time_s", simulation.step_time_s},
          {"uncertainty", simulation.uncertainty},
          {"tokens_per_s", simulation.tokens_per_s()},
          {"flops_per_device", simulation.flops_per_device()},
          {"mfu", simulation.peak_flops > 0 ? simulation.mfu() : 0},
          {"peak_memory_bytes", peak},
          {"capacity_bytes", capacity},
          {"bytes_sent", sent},
          {"ranks", simulation.ranks},
          {"spent_s", spent}};
}

OrderedJson path_json(const Simulation& simulation) {
  OrderedJson path = OrderedJson::array();
  for (const PathStep& step : simulation.critical_path) {
    path.push_back({{"what", spent_name(step.what)},
                    {"label", step.label},
                    {"rank", step.rank},
                    {"start", nanoseconds(step.start_s)},
                    {"end", nanoseconds(step.end_s)}});
  }
  return path;
}

// ---- plan beside graph
OrderedJson op_json(const ResolvedPlan& plan, const Op& op) {
  const OpPlan& op_plan = plan.ops[op.id.index()];
  const Mesh& mesh = plan.stages[op_plan.stage.index()].mesh;
  std::string splits;
  std::vector<int> lines;
  for (size_t d = 0; d < op_plan.dims.size(); ++d) {
    const DimSplit& split = op_plan.dims[d];
    if (!split.split()) continue;
    std::string over;
    for (const AxisId axis : split.axes) {
      over += fmt::format("{}{}={}", over.empty() ? "" : ",", mesh.axis(axis).name,
                          mesh.axis(axis).size);
    }
    if (split.steps > 1) over += fmt::format("{}time:{}", over.empty() ? "" : ",", split.steps);
    if (split.rims) over += over.empty() ? "time:rims" : ",time:rims";
    splits += fmt::format("{}{}/{}", splits.empty() ? "" : "  ", op.annotation.dims[d].name, over);
    if (split.entry >= 0) {
      lines.push_back(plan.plan.splits[static_cast<size_t>(split.entry)].line);
    }
  }
  if (op_plan.stage_entry >= 0) {
    lines.push_back(plan.plan.stages[static_cast<size_t>(op_plan.stage_entry)].line);
  }
  std::sort(lines.begin(), lines.end());
  lines.erase(std::unique(lines.begin(), lines.end()), lines.end());
  return {{"path", op.path},
          {"kind", op.kind},
          {"stage", op_plan.stage.value},
          {"splits", splits},
          {"lines", lines}};
}

// ---- embedding tables
Result<OrderedJson> tables_json(const ReportRun& item) {
  TESSERA_TRY(const std::vector<TableLoad> loads, table_loads(*item.lowering, item.tables));
  OrderedJson shares = OrderedJson::array(), ranks = OrderedJson::array();
  for (const TableLoad& load : loads) {
    int64_t bytes = 0, state_bytes = 0;
    for (const TableShare& share : load.shares) {
      bytes += share.bytes;
      state_bytes += share.state_bytes;
      shares.push_back({share.table, share.rank, share.rows.begin, share.rows.size,
                        share.columns.begin, share.columns.size, tier_name(share.tier), share.bytes,
                        share.state_bytes});
    }
    ranks.push_back({load.rank, load.ranks, load.shares.size(), bytes, state_bytes, load.rows_read,
                     load.bytes_read});
  }
  return OrderedJson{{"shares", std::move(shares)}, {"loads", std::move(ranks)}};
}

Result<OrderedJson> run_json(const Report& report, const ReportRun& item) {
  Labels labels;
  const Simulation& simulation = item.simulation;
  OrderedJson run{{"name", item.name},
                  {"plan_text", item.plan_text},
                  {"summary", summary_json(simulation, report.capacity_bytes)},
                  {"end_ns", nanoseconds(simulation.step_time_s)},
                  {"roles", roles_json(simulation)},
                  {"path", path_json(simulation)},
                  {"costs", costs_of(simulation)}};
  add_timeline(simulation, report.most_events, labels, run);
  run["labels"] = labels.list();
  TESSERA_TRY(const CommunicationMatrix matrix, communication_matrix(*item.lowering));
  OrderedJson cells = OrderedJson::array();
  for (const auto& cell : matrix.cells) cells.push_back({cell.from, cell.to, cell.bytes});
  run["matrix"] = {{"labels", matrix.labels}, {"cells", std::move(cells)}, {"note", matrix.note}};
  OrderedJson ops = OrderedJson::array();
  for (const Op& op : item.lowering->graph().ops()) {
    ops.push_back(op_json(item.lowering->plan(), op));
  }
  run["ops"] = std::move(ops);
  TESSERA_TRY(run["tables"], tables_json(item));
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
  for (const PlanCurve::Point& point : curve.estimated) {
    estimated.push_back(point_json(point, curve.batch));
  }
  for (const PlanCurve::Program& program : curve.simulated) {
    OrderedJson item = point_json(program, curve.batch);
    item["estimate"] = point_json(program.estimate, curve.batch);
    simulated.push_back(std::move(item));
  }
  return {{"about", fmt::format("{} on {}, batch {}", curve.model, curve.cluster, curve.batch)},
          {"limit_bytes", curve.limit_bytes},
          {"planner", curve.planner},
          {"estimated", std::move(estimated)},
          {"simulated", std::move(simulated)},
          {"best", curve.best ? OrderedJson(*curve.best) : OrderedJson()},
          {"refused", curve.refused}};
}

}  // namespace

Result<std::string> report_data(const Report& report) {
  OrderedJson spent = OrderedJson::array(), runs = OrderedJson::array();
  for (size_t i = 0; i < kSpent; ++i) spent.push_back(spent_name(static_cast<Spent>(i)));
  for (const ReportRun& item : report.runs) {
    TESSERA_TRY(OrderedJson run, run_json(report, item));
    runs.push_back(std::move(run));
  }
  return dumped(OrderedJson{{"title", report.title},
                            {"subtitle", report.subtitle},
                            {"spent", std::move(spent)},
                            {"runs", std::move(runs)},
                            {"curve", report.curve ? curve_json(*report.curve) : OrderedJson()}});
}

}  // namespace tessera
