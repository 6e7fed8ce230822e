// tessera train: reads the run file, trains, and shows the progress.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

#include "tessera/base/json_text.h"
#include "tessera/base/one_line.h"
#include "tessera/base/text.h"
#include "tessera/cli/libraries/auto_plan.h"
#include "tessera/cli/output.h"
#include "tessera/cli/with_runtime/commands.h"
#include "tessera/comm/communicator.h"
#include "tessera/comm/process_hosts.h"
#include "tessera/compile/compile.h"
#include "tessera/models/model_title.h"
#include "tessera/network/apply_order.h"
#include "tessera/plan/load.h"
#include "tessera/runtime/evaluation/metrics.h"
#include "tessera/runtime/session.h"
#include "tessera/runtime/training/steering_file.h"
#include "tessera/simulate/chrome_trace.h"

namespace tessera::cli::with_runtime {
namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

// Gives the run's plan the order of devices that is best on the network of --network.
Status order_ranks(const TrainOptions& options, RunConfig& config) {
  if (options.network.empty()) {
    if (options.hosts.empty()) return {};
    return invalid_input("train: expected --network FILE with --hosts, found none");
  }
  TESSERA_TRY(NamedNetwork network, load_named_network(options.network, options.hosts));
  if (comm::mpi_launched()) {
    TESSERA_TRY(const std::vector<std::string> hosts, comm::mpi_process_hosts());
    if (options.hosts.empty()) {
      TESSERA_TRY(network, network_of_launch(network, hosts));
    }
    TESSERA_TRY_VOID(check_processes(network, hosts.size()));
  }
  TESSERA_TRY(const DType compute, parse_dtype(config.precision));
  Compiler compiler;
  TESSERA_TRY(const int64_t batch,
              compiler.batch_of(config.model, config.batch, kDefaultBatch, storage_dtype(compute)));
  TESSERA_TRY(const Compiled compiled, compiler.compile({config.model,
                                                         config.plan,
                                                         batch,
                                                         config.precision,
                                                         config.file,
                                                         specification(config.optimizer),
                                                         false,
                                                         {},
                                                         true}));
  if (compiled.outer) {
    return invalid_input(fmt::format(
        "{}:{}: expected a plan without 'outer' beside --network: list the hosts island by island "
        "instead",
        compiled.outer->plan.file, compiled.outer->plan.outer->line));
  }
  TESSERA_TRY(const OrderedPlan ordered, plan_in_order(*compiled.lowering, network));
  if (ordered.changed)
    config.plan = ordered_plan_text(ordered, plan_label(config.plan), options.network);
  return {};
}

Result<RunConfig> train_config(const TrainOptions& options) {
  TESSERA_TRY(RunConfig config, load_run_config(options.run_file));
  for (const std::string& assignment : options.assignments) {
    TESSERA_TRY_VOID(set_run_key(config, assignment));
  }
  if (options.plan) {
    config.plan = *options.plan;
    config.changes.clear();  // the changes in the run file are about its own plan
  }
  for (const std::string& text : options.changes) {
    TESSERA_TRY(PlanChange change, parse_plan_change(text));
    config.changes.push_back(std::move(change));
  }
  if (options.ranks) config.ranks = *options.ranks;
  if (options.steps) config.steps = *options.steps;
  if (options.timeout_s) config.timeout_s = *options.timeout_s;
  if (options.device) config.device = *options.device;
  config.resume = options.resume;
  if (!options.steer.empty() && !config.changes.empty()) {
    return invalid_input(
        "train: expected a run without changes of its plan beside --steer, found one");
  }
  TESSERA_TRY_VOID(check_run_config(config));
  Style style;  // processes exchange data in another way than threads
  if (comm::mpi_launched()) style.transport = Style::Transport::kMpi;
  const auto found = [&](const std::string& plan) {
    return find_auto({plan, config.model, config.batch, config.precision, nullptr, style,
                      config.ranks, specification(config.optimizer)});
  };
  TESSERA_TRY(config.plan, found(config.plan));
  TESSERA_TRY_VOID(order_ranks(options, config));
  for (PlanChange& change : config.changes) {
    TESSERA_TRY(change.plan, found(change.plan));
  }
  return config;
}

std::string duration_text(double seconds) {
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  if (whole < 3600) return fmt::format("{}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

// Returns how an evaluation is written in the report of a step or in the summary: "0.5012"; for a
// model of clicks "0.5012, NE 0.8210, AUC 0.7611"; for one that predicts classes "0.5012, accuracy
// 81.30 %".
template <typename Report>
std::string eval_text(const Report& report) {
  const auto number = [](double value) {
    return std::isfinite(value) ? fmt::format("{:.4f}", value) : std::string("none");
  };
  std::string text = fmt::format("{:.4f}", *report.eval_loss);
  if (report.eval_clicks) {
    text += fmt::format(", NE {}, AUC {}", number(report.eval_clicks->normalized_entropy),
                        number(report.eval_clicks->auc));
  }
  if (report.eval_accuracy) text += ", " + accuracy_text(*report.eval_accuracy);
  return text;
}

// Adds the numbers of an evaluation to `json`; a number that is not finite becomes null.
template <typename Report>
void add_eval(Json& json, const Report& report) {
  if (report.eval_loss) json["eval_loss"] = *report.eval_loss;
  if (report.eval_clicks) {
    json["eval_normalized_entropy"] = report.eval_clicks->normalized_entropy;
    json["eval_auc"] = report.eval_clicks->auc;
  }
  if (report.eval_accuracy) json["eval_accuracy"] = *report.eval_accuracy;
}

// Shows a run to the user. On a terminal, it writes one line, which it overwrites; elsewhere
// (mpirun hides whether there is a terminal) a line every few seconds; with --json, one line of
// JSON for each step.
class Progress {
 public:
  Progress(const RunConfig& config, bool json)
      : steps_(config.steps),
        json_(json),
        terminal_(!json && !comm::mpi_launched() && isatty(STDOUT_FILENO) == 1) {}
  ~Progress() { end_line(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void start(const TrainingStart& start);
  void step(const StepReport& report);
  void change(const ChangeReport& report);
  template <typename Report>
  void event(const Report& report) {  // events for programs; only JSON has them
    if (printer_ && json_) write(event_text(report) + "\n");
  }
  int finish(const TrainingSummary& summary);
  bool printer() const { return printer_; }

 private:
  static constexpr double kLineSeconds = 5;       // between lines if there is no terminal
  static constexpr double kRefreshSeconds = 0.1;  // between updates of the line on a terminal

  bool is_due(int64_t step) const;
  void end_line() {
    if (line_open_) write("\n");
    line_open_ = false;
  }
  void write(std::string_view text) { status_ = std::max(status_, print(text)); }
  static double seconds_since(Clock::time_point from) {
    return std::chrono::duration<double>(Clock::now() - from).count();
  }

  int64_t steps_, done_ = 0;  // steps of the run; steps done by this process
  std::string eval_text_;     // the text of the last evaluation
  bool json_, terminal_, printer_ = true, line_open_ = false;
  int status_ = 0;
  Clock::time_point start_ = Clock::now(), shown_ = start_;
};

void Progress::start(const TrainingStart& start) {
  printer_ = start.printer;
  start_ = shown_ = Clock::now();
  if (!printer_ || json_) return;
  write(fmt::format("{}, {} ({}), {} a rank\n", model_title(start.model, start.parameters),
                    plural(start.ranks, "rank"), start.transport, short_bytes(start.arena_bytes)));
  const std::string data =
      start.data_files == 0
          ? std::string("random")
          : fmt::format("{}, {}", plural(start.data_files, "file"), short_bytes(start.data_bytes));
  write(fmt::format("plan {}; data: {}; {} tokens a step\n", start.plan, data,
                    grouped(start.tokens_per_step)));
}

bool Progress::is_due(int64_t step) const {
  if (step == 1 || step >= steps_) return true;
  const double passed = seconds_since(shown_);
  if (terminal_) return passed >= kRefreshSeconds;
  return passed >= kLineSeconds || step % std::max<int64_t>(1, steps_ / 10) == 0;
}

void Progress::step(const StepReport& report) {
  if (!printer_) return;
  if (json_) {
    Json json{{"step", report.step},
              {"loss", report.loss},
              {"step_time_s", report.step_time_s},
              {"tokens_per_s", report.tokens_per_s}};
    add_eval(json, report);
    return write(dumped(json) + "\n");
  }
  ++done_;
  if (!is_due(report.step) && !report.eval_loss) return;
  shown_ = Clock::now();
  const double left = seconds_since(start_) / static_cast<double>(done_) *
                      static_cast<double>(steps_ - report.step);
  if (report.eval_loss) eval_text_ = "  eval " + eval_text(report);
  const std::string line =
      fmt::format("step {:>{}}/{}  loss {:.4f}{}  {:>7} tokens/s  {} left", report.step,
                  std::to_string(steps_).size(), steps_, report.loss,
                  terminal_ || report.eval_loss ? eval_text_ : std::string(),
                  grouped(static_cast<int64_t>(report.tokens_per_s)), duration_text(left));
  write(terminal_ ? "\r" + line + "\x1b[K" : line + "\n");
  line_open_ = terminal_;
}

void Progress::change(const ChangeReport& report) {
  if (!printer_) return;
  if (json_) return write(event_text(report) + "\n");
  end_line();
  write(fmt::format("after step {}: plan {} on {}; {} of state moved in {:.3g} s{}\n", report.after,
                    report.plan, plural(report.ranks, "rank"), short_bytes(report.bytes_counted),
                    report.seconds,
                    report.begun_anew.empty() ? std::string()
                                              : "; begun anew: " + join(report.begun_anew, ", ")));
}

Json summary_json(const TrainingSummary& summary) {
  Json sent = Json::object();
  for (const auto& [kind, bytes] : summary.bytes_sent) sent[kind] = bytes;
  Json json{{"summary",
             {{"steps", summary.steps},
              {"ranks", summary.ranks},
              {"transport", summary.transport},
              {"parameters", summary.parameters},
              {"first_loss", summary.first_loss},
              {"last_loss", summary.last_loss},
              {"tokens_per_s", summary.tokens_per_s},
              {"peak_memory_bytes", summary.peak_memory_bytes},
              {"process_peak_bytes", summary.process_peak_bytes},
              {"bytes_sent", std::move(sent)}}}};
  if (summary.stopped_after > 0) json["summary"]["stopped_after"] = summary.stopped_after;
  if (summary.data_bytes_read > 0) {
    json["summary"]["data_bytes_read"] = {{"all_ranks", summary.data_bytes_read},
                                          {"of_a_rank", summary.data_bytes_read_of_a_rank}};
  }
  if (summary.data_bytes_kept_of_a_rank > 0) {
    json["summary"]["data_store"] = {{"bytes_of_a_rank", summary.data_bytes_kept_of_a_rank},
                                     {"bytes_moved", summary.data_bytes_moved}};
  }
  add_eval(json["summary"], summary);
  if (const CheckpointSummary& one = summary.checkpoints; one.saved + one.resumed_from > 0) {
    json["summary"]["checkpoints"] = {
        {"resumed_from", one.resumed_from},   {"saved", one.saved},
        {"bytes_written", one.bytes_written}, {"bytes_read", one.bytes_read},
        {"memory_bytes", one.memory_bytes},   {"seconds", one.seconds}};
  }
  if (!summary.row_caches.empty())
    json["summary"]["row_caches"] = Json::parse(event_text(summary.row_caches))["row_caches"];
  return json;
}

int Progress::finish(const TrainingSummary& summary) {
  end_line();
  if (!printer_) return status_;
  if (json_) {
    write(dumped(summary_json(summary)) + "\n");
    return status_;
  }
  if (done_ == 0) {
    write(fmt::format("all {} were done before\n", plural(summary.steps, "step")));
    return status_;
  }
  std::vector<std::string> sent;
  for (const auto& [kind, bytes] : summary.bytes_sent) {
    sent.push_back(fmt::format("{} {}", kind, short_bytes(bytes)));
  }
  const std::string eval =
      summary.eval_loss ? fmt::format(" (eval {})", eval_text(summary)) : std::string();
  write(fmt::format(
      "loss {:.4f} -> {:.4f}{} in {}, {}; median {} tokens/s\n", summary.first_loss,
      summary.last_loss, eval,
      summary.stopped_after > 0
          ? fmt::format("{} of {}", summary.stopped_after, plural(summary.steps, "step"))
          : plural(summary.steps, "step"),
      duration_text(seconds_since(start_)), grouped(static_cast<int64_t>(summary.tokens_per_s))));
  write(fmt::format("peak memory of a rank {}, of the process {}; sent: {}\n",
                    short_bytes(summary.peak_memory_bytes), short_bytes(summary.process_peak_bytes),
                    sent.empty() ? "nothing" : join(sent, ", ")));
  if (summary.data_bytes_read > 0) {
    write(fmt::format("read of files {}, of the rank with the most {}\n",
                      short_bytes(summary.data_bytes_read),
                      short_bytes(summary.data_bytes_read_of_a_rank)));
  }
  if (summary.data_bytes_kept_of_a_rank > 0) {
    write(fmt::format("samples kept by the rank with the most {}, sent between ranks {}\n",
                      short_bytes(summary.data_bytes_kept_of_a_rank),
                      short_bytes(summary.data_bytes_moved)));
  }
  for (const TableCacheSummary& one : summary.row_caches) {
    write(fmt::format(
        "cache of {}: {} of {} rows, {}; hit rate {:.2f} %, rows in {}, out {}, "
        "without a slot {}\n",
        one.table, grouped(one.slots), grouped(one.rows), one.policy, 100 * one.hit_rate(),
        grouped(one.rows_in), grouped(one.rows_out), grouped(one.overflow_rows)));
  }
  if (const CheckpointSummary& one = summary.checkpoints; one.saved > 0) {
    write(fmt::format("{} of {} in all, for which steps waited {:.2f} s{}\n",
                      plural(one.saved, "checkpoint"), short_bytes(one.bytes_written), one.seconds,
                      one.memory_bytes > 0 ? fmt::format("; memory of a rank for their copies {}",
                                                         short_bytes(one.memory_bytes))
                                           : std::string()));
  }
  return status_;
}

}  // namespace

namespace {

Result<int64_t> trace_step_of(const TrainOptions& options, const RunConfig& config) {
  const int64_t step = options.trace_step.value_or(std::min<int64_t>(3, config.steps));
  if (step <= config.steps) return step;
  return invalid_input(fmt::format(
      "train: expected --trace-step from 1 to {}, the run's steps, found {}", config.steps, step));
}

}  // namespace

Result<int> train(const TrainOptions& options) {
  TESSERA_TRY(const RunConfig config, train_config(options));
  Progress progress(config, options.json);
  TrainingCallbacks callbacks;
  callbacks.start = [&](const TrainingStart& start) { progress.start(start); };
  callbacks.step = [&](const StepReport& report) { progress.step(report); };
  callbacks.change = [&](const ChangeReport& report) { progress.change(report); };
  callbacks.saved = [&](const SaveReport& report) { progress.event(report); };
  callbacks.loaded = [&](const LoadReport& report) { progress.event(report); };
  callbacks.note = [](const std::string& note) {
    fmt::print(stderr, "note: {}\n", message_line(note));
  };
  SteeringFile steering(options.steer, callbacks.note);
  if (!options.steer.empty()) callbacks.steer = [&](int64_t) { return steering.look(); };
  if (!options.trace.empty()) {
    TESSERA_TRY(callbacks.trace_step, trace_step_of(options, config));
  } else if (options.trace_step) {
    return invalid_input("train: expected --trace FILE with --trace-step, found none");
  }
  Status written;
  callbacks.trace = [&](const Simulation& step) {
    written = write_file(options.trace, to_chrome_trace(step));
  };
  TESSERA_TRY(const TrainingSummary summary, run_training(config, callbacks));
  const int code = progress.finish(summary);
  TESSERA_TRY_VOID(written);
  return code;
}

}  // namespace tessera::cli::with_runtime
