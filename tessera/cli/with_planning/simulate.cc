// tessera simulate: simulates the step of a plan on a described machine.
#include "tessera/simulate/simulate.h"
#include "tessera/base/json_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "tessera/base/memory_text.h"
#include "tessera/base/text.h"
#include "tessera/cli/cli.h"
#include "tessera/cli/counted_rows.h"
#include "tessera/cli/libraries/auto_plan.h"
#include "tessera/cli/machine.h"
#include "tessera/cli/output.h"
#include "tessera/cli/planned_model.h"
#include "tessera/cli/with_planning/commands.h"
#include "tessera/cli/with_planning/pricing.h"
#include "tessera/compile/compile.h"
#include "tessera/compile/optimizer_text.h"
#include "tessera/cost/figure.h"
#include "tessera/models/model_title.h"
#include "tessera/plan/load.h"
#include "tessera/search/fit.h"
#include "tessera/search/price/simulate_islands.h"
#include "tessera/simulate/chakra.h"
#include "tessera/simulate/chrome_trace.h"
#include "tessera/simulate/traffic_json.h"

namespace tessera::cli {
namespace {

using Json = nlohmann::ordered_json;

struct SimulateCommand {
  std::string model, plan, cluster, what_if, optimizer, data;
  PricingOptions pricing;
  std::vector<std::string> stragglers;
  int64_t batch = 0, evaluations = kMostEvaluations;
  double jitter = 0, failures = 0, restart_s = 0;
  uint64_t seed = 0;
  bool no_fold = false, json = false, verbose = false;
  std::string trace, chakra;
};

constexpr std::array<CostSource, 5> kSources = {CostSource::kMeasured, CostSource::kInterpolated,
                                                CostSource::kTileModel, CostSource::kCurve,
                                                CostSource::kConstant};

// Reads "7*2", which says that device 7 is twice as slow.
Result<std::pair<int64_t, double>> parse_straggler(const std::string& text) {
  const size_t star = text.find('*');
  const auto device = parse_int(text.substr(0, star));
  const auto times = parse_double(star == text.npos ? "" : text.substr(star + 1));
  if (!device || !times) {
    return invalid_input(
        fmt::format("simulate: --straggler: expected DEVICE*TIMES (as 3*1.5), found '{}'", text));
  }
  return std::pair{*device, *times};
}

struct Totals {                         // sums over all ranks
  std::array<double, kSpent> share{};   // of each kind of time, in ranks x step
  const RankResult* fullest = nullptr;  // the role (rank class) whose device needs the most memory
  int64_t peak_memory() const { return fullest == nullptr ? 0 : fullest->memory.total_bytes(); }
};
Totals totals_of(const Simulation& s) {
  Totals out;
  for (const RankResult& role : s.roles) {
    for (size_t i = 0; i < kSpent; ++i) {
      out.share[i] += role.spent_s[i] * static_cast<double>(role.ranks) /
                      (s.step_time_s * static_cast<double>(s.ranks));
    }
    if (role.memory.total_bytes() > out.peak_memory()) out.fullest = &role;
  }
  return out;
}

// ---- JSON

Json spent_json(const std::array<double, kSpent>& spent) {
  Json out = Json::object();
  for (size_t i = 0; i < kSpent; ++i) {
    out[std::string(spent_name(static_cast<Spent>(i)))] = spent[i];
  }
  return out;
}

// Returns the parts of peak_memory_bytes and the largest buffers that are live at the peak.
Json memory_json(const MemoryUse& memory) {
  constexpr size_t kMostNamed = 20;
  Json at_peak = Json::array();
  for (const LiveBuffer& live : memory.at_peak) {
    if (at_peak.size() == kMostNamed) break;
    at_peak.push_back({{"name", live.name}, {"what", live.what}, {"bytes", live.bytes}});
  }
  return {{"buffers_bytes", memory.peak_bytes},
          {"reserved_bytes", memory.reserved_bytes},
          {"overhead_bytes", memory.overhead_bytes},
          {"low_bytes", std::llround(memory.low)},
          {"high_bytes", std::llround(memory.high)},
          {"peak_time_s", memory.peak_time_s},
          {"at_peak", std::move(at_peak)}};
}

Json role_json(const RankResult& role) {
  Json busy = Json::object();
  for (size_t i = 1; i < kLanes; ++i) {
    busy[std::string(lane_name(static_cast<Lane>(i)))] = role.busy_s[i];
  }
  return {{"stages", role.stages},
          {"representative", role.representative},
          {"ranks", role.ranks},
          {"spent_s", spent_json(role.spent_s)},
          {"busy_s", std::move(busy)},
          {"flops", role.flops},
          {"host_s", role.host_s},
          {"launches", role.launches},
          {"peak_memory_bytes", role.memory.total_bytes()},
          {"memory", memory_json(role.memory)},
          {"traffic", traffic_json(role.traffic)}};
}

std::string to_json(const SimulateCommand& options, const Compiled& planned, const Cluster& cluster,
                    const Pricing& pricing, const Simulation& s, const OuterTimes& outer,
                    const std::optional<Simulation>& was) {
  const Totals totals = totals_of(s);
  const auto share = [&](Spent what) { return totals.share[static_cast<size_t>(what)]; };
  const std::optional<Room> room = find_room(s, cluster);
  Json roles = Json::array(), path = Json::array(), sources = Json::object();
  for (const RankResult& role : s.roles) roles.push_back(role_json(role));
  for (const PathStep& step : s.critical_path) {
    path.push_back({{"rank", step.rank},
                    {"what", spent_name(step.what)},
                    {"label", step.label},
                    {"start_s", step.start_s},
                    {"end_s", step.end_s}});
    if (step.times > 1) path.back().update({{"times", step.times}, {"period_s", step.period_s}});
  }
  for (size_t i = 0; i < kSources.size(); ++i) {
    sources[std::string(source_name(kSources[i]))] = s.source_share[i];
  }
  Json out{{"model", planned.model->spec},
           {"title", model_title(*planned.model)},
           {"plan", plan_label(options.plan)},
           {"cluster", cluster.name},
           {"style", to_string(pricing.style)},
           {"priced_with", pricing.said},
           {"batch", planned.batch * planned.islands()},
           {"precision", dtype_name(planned.computes_in())},
           {"ranks", s.ranks},
           {"step_time_s", s.step_time_s},
           {"uncertainty", s.uncertainty},
           {"tokens", s.tokens},
           {"tokens_per_s", s.tokens_per_s()},
           {"tflops_per_device", s.flops_per_device() / 1e12},
           {"mfu", s.mfu()},
           {"model_flops", s.model_flops},
           {"hardware_flops", s.hardware_flops},
           {"peak_memory_bytes", totals.peak_memory()},
           {"fits", !find_shortage(s, cluster).has_value()},
           {"free_bytes", room ? Json(room->free_bytes) : Json()},
           {"tight", room && room->is_tight()},
           {"bubble", share(Spent::kBubble)},
           {"exposed_communication", share(Spent::kCollective) + share(Spent::kMessage)},
           {"host_bound", share(Spent::kHost)},
           {"failure_loss_s", s.failure_loss_s},
           {"simulated_events", s.simulated_events},
           {"sources", std::move(sources)},
           {"roles", std::move(roles)},
           {"critical_path", std::move(path)}};
  if (planned.outer) {
    const OuterSteps& rule = *planned.outer->plan.outer;
    out["outer_steps"] = {{"islands", planned.islands()},
                          {"every", rule.every},
                          {"lossy", true},
                          {"inner_step_time_s", outer.inner_step_s},
                          {"outer_step_time_s", outer.fragment_s},
                          {"bytes_of_a_rank", outer.bytes},
                          {"a_step_s", outer.a_step_s}};
  }
  if (was) {
    out["before"] = {{"step_time_s", was->step_time_s},
                     {"mfu", was->mfu()},
                     {"peak_memory_bytes", totals_of(*was).peak_memory()}};
  }
  return dumped(out) + "\n";
}

// ---- text

std::string amount(int64_t bytes) { return memory_text(static_cast<double>(bytes)); }

std::string stages_text(const RankResult& role) {
  return fmt::format("{}", fmt::join(role.stages, " "));
}

// Shows on what each role (rank class) spends its time. Roles with the same stages and the same
// cells share a line.
std::string time_table(const Simulation& s) {
  std::vector<std::string> head{"stage", "ranks", "memory"};
  for (size_t i = 0; i < kSpent; ++i) head.emplace_back(spent_name(static_cast<Spent>(i)));
  std::vector<std::pair<std::vector<std::string>, int64_t>> lines;  // cells, ranks
  for (const RankResult& role : s.roles) {
    std::vector<std::string> row{stages_text(role), amount(role.memory.total_bytes())};
    for (const double spent : role.spent_s)
      row.push_back(spent < 1e-9 ? "-" : short_seconds(spent));
    const auto known =
        std::ranges::find_if(lines, [&](const auto& line) { return line.first == row; });
    if (known != lines.end()) {
      known->second += role.ranks;
    } else {
      lines.emplace_back(std::move(row), role.ranks);
    }
  }
  Table table(head);
  for (auto& [row, ranks] : lines) {
    row.insert(row.begin() + 1, grouped(ranks));
    table.add(std::move(row));
  }
  return table.to_string();
}

// Shows transfers by kind and axes. The numbers of a line are those of the rank that waits the
// longest for such transfers.
std::string traffic_table(const Simulation& s) {
  std::map<std::pair<std::string, std::string>, TrafficRow> worst;
  for (const RankResult& role : s.roles) {
    for (const TrafficRow& row : role.traffic) {
      const auto [it, fresh] = worst.try_emplace({row.kind, row.axes}, row);
      if (!fresh && row.exposed_s > it->second.exposed_s) it->second = row;
    }
  }
  if (worst.empty()) return "";
  Table table({"transfer", "over", "count", "sent", "busy", "exposed", "algorithm"});
  for (const auto& [key, row] : worst) {
    table.add({row.kind, row.axes, grouped(row.count), row.bytes == 0 ? "-" : amount(row.bytes),
               short_seconds(row.seconds), short_seconds(row.exposed_s), row.algorithm});
  }
  return "\nTransfers in a step, of the rank that waits for them the longest:\n" +
         table.to_string();
}

// Returns the bytes that are live at the peak, added up by kind.
std::string live_text(const MemoryUse& use) {
  std::vector<std::string> parts;
  for (const auto& [what, bytes] : live_by_kind(use))
    parts.push_back(fmt::format("{} {}", what, amount(bytes)));
  return parts.empty() ? "" : ": " + join(parts, ", ");
}

// Returns the share of each kind of time in the critical path.
std::string path_text(const Simulation& s) {
  std::array<double, kSpent> spent{};
  for (const PathStep& step : s.critical_path) {
    spent[static_cast<size_t>(step.what)] += step.seconds();
  }
  std::vector<std::string> parts;
  for (size_t i = 0; i < kSpent; ++i) {
    if (spent[i] > 1e-4 * s.step_time_s) {
      parts.push_back(fmt::format("{} {}", spent_name(static_cast<Spent>(i)),
                                  percent(spent[i] / s.step_time_s)));
    }
  }
  return "Critical path: " + join(parts, ", ") + "\n";
}

// Returns whether the step fits, and with how much to spare.
std::string room_text(const Simulation& s, const Cluster& cluster) {
  const std::optional<Room> room = find_room(s, cluster);
  if (!room) return "";
  const std::string share = percent(static_cast<double>(std::abs(room->free_bytes)) /
                                    static_cast<double>(room->capacity_bytes));
  if (room->free_bytes < 0) {
    return fmt::format("fits            no: {} ({}) too much\n", amount(-room->free_bytes), share);
  }
  return fmt::format("fits            {}: {} ({}) free beside the upper bound of what is needed\n",
                     room->is_tight() ? "yes, but tight" : "yes", amount(room->free_bytes), share);
}

// Returns what the host does in a step, of the rank whose host has most to do, and whether the
// devices wait for it more than for anything else.
std::string host_text(const Simulation& s, const Totals& totals, const Style& style) {
  const RankResult& most = *std::ranges::max_element(s.roles, {}, &RankResult::host_s);
  const std::string launches = grouped(std::llround(most.launches)) + " launches";
  const std::string what =
      style.host == Style::Host::kGraph
          ? fmt::format("launches one graph a step in {}, with {} inside",
                        short_seconds(most.host_s), launches)
          : fmt::format("{} a step take {}", launches, short_seconds(most.host_s));
  const auto worst = std::ranges::max_element(totals.share);
  const bool bound = worst - totals.share.begin() == static_cast<int64_t>(Spent::kHost);
  return fmt::format("host            {}{}\n", what,
                     bound ? fmt::format("; it bounds the step: devices wait for it {} of the time",
                                         percent(*worst))
                           : "");
}

std::string to_text(const SimulateCommand& options, const Compiled& planned, const Cluster& cluster,
                    const Pricing& pricing, const Simulation& s, const OuterTimes& outer) {
  const Totals totals = totals_of(s);
  const auto share = [&](Spent what) { return totals.share[static_cast<size_t>(what)]; };
  std::string out = fmt::format(
      "{} under {} in {} on {} ({})\npriced with {}\n{}\n"
      "step            {} (uncertainty {})\n"
      "throughput      {} tokens/s, {}FLOP/s a device, MFU {}\n"
      "peak memory     {} of {} a device{}\n"
      "{}"
      "device time     bubble {}, exposed communication {}, host-bound {}, recompute {}\n",
      model_title(*planned.model), plan_label(options.plan), dtype_name(planned.computes_in()),
      machine_title(cluster), plural(s.ranks, "rank"), pricing.said,
      options.verbose ? planned.model->spec + "\n" : "", short_seconds(s.step_time_s),
      percent(s.uncertainty), grouped(std::llround(s.tokens_per_s())),
      short_number(s.flops_per_device()), percent(s.mfu()), amount(totals.peak_memory()),
      amount(cluster.type_of(0).device.memory_bytes),
      totals.fullest == nullptr ? "" : live_text(totals.fullest->memory), room_text(s, cluster),
      percent(share(Spent::kBubble)), percent(share(Spent::kCollective) + share(Spent::kMessage)),
      percent(share(Spent::kHost)), percent(share(Spent::kRecompute)));
  if (pricing.style.host != Style::Host::kOps) out += host_text(s, totals, pricing.style);
  if (planned.outer) {
    const OuterSteps& rule = *planned.outer->plan.outer;
    const int64_t most = *std::max_element(outer.bytes.begin(), outer.bytes.end());
    out += fmt::format(
        "outer steps     {} islands, one step in {} (of {}): {} a step on average beside {} of an "
        "island; the busiest rank sends {} in one. Lossy: the run is not that of one island\n",
        planned.islands(), rule.interval(), plural(rule.fragments, "fragment"),
        short_seconds(outer.a_step_s), short_seconds(outer.inner_step_s), amount(most));
  }
  if (s.failure_loss_s > 0) {
    out += fmt::format("failures        {} a step lost besides (expected)\n",
                       short_seconds(s.failure_loss_s));
  }
  std::vector<std::string> sources;
  for (size_t i = 0; i < kSources.size(); ++i) {
    if (s.source_share[i] > 0) {
      sources.push_back(fmt::format("{} {}", source_name(kSources[i]), percent(s.source_share[i])));
    }
  }
  out += "costs from      " + join(sources, ", ") + "\n";
  out += "\nWhere the time of a rank goes:\n" + time_table(s) + traffic_table(s) + "\n";
  return out + path_text(s);
}

// Returns what a changed machine changes: each figure before, after, and the difference.
std::string change_text(const std::string& what_if, const Simulation& was, const Simulation& now) {
  const auto change = [](double before, double after) {
    return before > 0 ? signed_percent(after / before - 1) : std::string("from nothing");
  };
  const int64_t held = totals_of(was).peak_memory(), holds = totals_of(now).peak_memory();
  return fmt::format("what if {}: step {} -> {} ({}), MFU {} -> {}, memory {} -> {} ({})", what_if,
                     short_seconds(was.step_time_s), short_seconds(now.step_time_s),
                     change(was.step_time_s, now.step_time_s), percent(was.mfu()),
                     percent(now.mfu()), amount(held), amount(holds),
                     change(static_cast<double>(held), static_cast<double>(holds)));
}

Result<int> run_simulate(const SimulateCommand& given) {
  SimulateCommand options = given;
  SimulateOptions simulated;
  TESSERA_TRY(options.model, planned_model(given.model));
  TESSERA_TRY(Cluster machine, load_machine(options.cluster));
  Compiler compiler;
  TESSERA_TRY(const Pricing pricing,
              decide_pricing(options.pricing, std::move(machine),
                             {options.model, options.plan, options.batch, given.model, &compiler}));
  Cluster cluster = pricing.cluster;
  simulated.style = pricing.style;
  CompileTexts texts{options.model, "", options.batch, pricing.precision};
  TESSERA_TRY(texts.optimizer, parse_optimizer_text(options.optimizer));
  TESSERA_TRY(options.plan,
              find_auto({options.plan, options.model, options.batch, pricing.precision, &cluster,
                         simulated.style, 0, texts.optimizer}));
  texts.plan = options.plan;
  const Cluster before = cluster;
  if (!options.what_if.empty()) TESSERA_TRY_VOID(apply_what_if(cluster, options.what_if));
  for (const std::string& text : options.stragglers) {
    TESSERA_TRY(const auto straggler, parse_straggler(text));
    simulated.stragglers.push_back(straggler);
  }
  simulated.fold = !options.no_fold;
  simulated.seed = options.seed;
  simulated.jitter = options.jitter;
  simulated.failures_a_device_year = options.failures;
  simulated.restart_s = options.restart_s;
  texts.takes_outer = true;
  TESSERA_TRY(const Compiled planned, compiler.compile(texts));
  if (!options.data.empty()) {
    auto counts = counted_rows(options.data, planned.lowering->graph());
    if (!counts) return invalid_input("simulate: " + counts.error().message);
    simulated.counts = std::move(*counts);
  }
  simulated.events = !options.trace.empty() || !options.chakra.empty();
  OuterTimes outer;
  TESSERA_TRY(const Simulation result, simulate_islands(planned, cluster, simulated, &outer));
  if (!options.trace.empty()) TESSERA_TRY_VOID(write_file(options.trace, to_chrome_trace(result)));
  if (!options.chakra.empty())
    TESSERA_TRY_VOID(write_chakra(*planned.lowering, result, options.chakra));
  simulated.events = false;
  std::optional<Simulation> was;
  if (!options.what_if.empty()) {
    TESSERA_TRY(was, simulate_islands(planned, before, simulated));
    if (!options.json) say_first(change_text(options.what_if, *was, result));
  }
  simulated.counts = nullptr;  // the counts are about this plan's program
  const int printed =
      print(options.json ? to_json(options, planned, cluster, pricing, result, outer, was)
                         : to_text(options, planned, cluster, pricing, result, outer));
  const auto shortage = find_shortage(result, cluster);
  if (!shortage) return printed;
  FitAdvice advice;
  if (!planned.outer) {
    TESSERA_TRY(advice, find_remedies({forward_of(planned.model), options.plan, &cluster, simulated,
                                       planned.compute, texts.optimizer,
                                       static_cast<size_t>(options.evaluations), &compiler,
                                       shortage->rank}));
  }
  note(fit_text(*shortage, advice, result.step_time_s));
  return 1;
}

}  // namespace

void add_simulate(Commands& commands) {
  const auto options = std::make_shared<SimulateCommand>();
  Command command = commands.add("simulate", "Predict the step of a plan on a described machine");
  command.option("MODEL", options->model, "Model").required();
  command.option("--plan", options->plan, "Plan file, recipe call, or auto").required();
  command
      .option("--cluster", options->cluster,
              "Machine: a preset and its nodes (dgx-a100:8), local, or a TOML file")
      .required();
  add_batch(command, options->batch);
  add_pricing(command, options->pricing);
  add_optimizer(command, options->optimizer);
  command.option("--data", options->data,
                 "Count the rows that ranks exchange, by the edges of this graph: "
                 "\"{ nodes = 'data/graphs/cora' }\" (default: edges are drawn evenly)");
  command.option("--what-if", options->what_if, "Change the machine, as 'link:nic*2'");
  command
      .option("--jitter", options->jitter,
              "Relative standard deviation of each kernel's time (every rank is played)")
      .at_least(0);
  command.option("--straggler", options->stragglers, "DEVICE*TIMES: a device that is slower");
  command.option("--seed", options->seed, "Of the jitter").at_least(0);
  command.option("--failures", options->failures, "Failures a device and year, with --restart")
      .at_least(0);
  command.option("--restart", options->restart_s, "Seconds that a failure costs").at_least(0);
  command
      .option("--evaluations", options->evaluations,
              "Of a plan that does not fit: how many changed plans may be simulated to find one "
              "that does")
      .default_text(std::to_string(options->evaluations))
      .at_least(0);
  command.flag("--no-fold", options->no_fold, "Play every rank, not one of each kind");
  command.option("--trace", options->trace,
                 "Write the step as a Chrome trace (docs/reference/traces.md)");
  command
      .option("--chakra", options->chakra,
              "Write PREFIX.<rank>.et for each rank, for network simulators, and the "
              "groups' members as PREFIX.groups.json")
      .type_name("PREFIX");
  command.flag("--verbose", options->verbose, "Also the model with every key, as --json has it");
  command.flag("--json", options->json, "Print JSON");
  command.footer(
      "Examples:\n"
      "  tessera simulate gpt:layers=96,hidden=12288,heads=96,seq=2048,vocab=51200 --batch 1536 "
      "\\\n"
      "      --plan 'megatron(tp=8,pp=16,dp=8,micro_batches=64)' --cluster dgx-a100:128 \\\n"
      "      --precision bfloat16\n"
      "  tessera simulate gpt:layers=4 --plan 'zero(stage=3,dp=8)' --cluster dgx-h100:1 \\\n"
      "      --what-if 'link:inner*0.5' --json\n"
      "  tessera simulate dlrm: --plan 'tables(8)' --cluster dgx-a100:1 --batch 16384 \\\n"
      "      --optimizer 'adamw,tables.*=rowwise_adagrad'\n"
      "  tessera simulate gpt:layers=4 --plan 'data_parallel(8)' --cluster dgx-h100:1 \\\n"
      "      --style tessera,host=launches\n");
  command.action([options] { return run_simulate(*options); });
}

}  // namespace tessera::cli
