// tessera launch: starts the run, and starts it again after a loss.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <utility>

#include "tessera/base/limits.h"
#include "tessera/base/one_line.h"
#include "tessera/base/text.h"
#include "tessera/cli/with_runtime/commands.h"
#include "tessera/models/model.h"
#include "tessera/orchestrate/launch.h"
#include "tessera/plan/load.h"
#include "tessera/runtime/run_config.h"
#include "tessera/state/checkpoint.h"

namespace tessera::cli::with_runtime {
namespace {

constexpr const char* kAuto = "auto";
constexpr std::chrono::milliseconds kMostForAnswer{20'000};  // for a host to answer

struct Host {
  std::string name;
  int64_t ranks = 0;
};

Result<Host> parse_host(const std::string& text) {
  const size_t colon = text.rfind(':');
  const auto ranks =
      colon == std::string::npos ? Result<int64_t>(1) : parse_int(text.substr(colon + 1));
  if (colon == 0 || !ranks || *ranks < 1 || *ranks > kMostRanks) {
    return invalid_input(fmt::format(
        "launch: --host: expected a host and its ranks, 1 to {}, as node3:8, found '{}'",
        kMostRanks, text));
  }
  return Host{text.substr(0, colon), *ranks};
}

// Returns the plans to try, each with the number of ranks that it runs on.
Result<std::vector<LaunchPlan>> plans_of(const LaunchOptions& options, const RunConfig& config) {
  std::vector<std::string> texts = options.plans;
  if (texts.empty()) {
    texts.push_back(config.plan);
    for (const PlanChange& change : config.changes) texts.push_back(change.plan);
  }
  TESSERA_TRY(const Model model, build_model_of(config.model, config.batch, kDefaultBatch));
  TESSERA_TRY(const DType compute, parse_dtype(config.precision));
  std::vector<LaunchPlan> plans;
  for (const std::string& text : texts) {
    if (text == kAuto) {
      plans.push_back({text, 0});
      continue;
    }
    TESSERA_TRY(const Plan plan, load_plan(text, model.graph, config.file, compute));
    plans.push_back({text, plan.ranks()});
  }
  if (!options.plans.empty()) return plans;
  // Together the run file's own plans are one choice, which runs on as many ranks as the largest of
  // these plans needs.
  LaunchPlan own{config.plan, 0};
  for (const LaunchPlan& plan : plans) own.ranks = std::max(own.ranks, plan.ranks);
  return std::vector<LaunchPlan>{own};
}

// The world of a launch: starts processes, looks for checkpoints in files, and writes the log.
class Machine : public LaunchWorld {
 public:
  Machine(const LaunchOptions& options, const RunConfig& config, std::vector<Host> hosts,
          std::string log)
      : options_(options), config_(config), hosts_(std::move(hosts)), log_(std::move(log)) {}

  Result<int64_t> available_ranks() override {
    if (hosts_.empty()) return options_.ranks.value_or(kAnyRanks);
    int64_t ranks = 0;
    answering_.clear();
    silent_.clear();
    for (const Host& host : hosts_) {
      const std::vector<std::string> words{"mpirun", "--host", host.name, "-n", "1", "true"};
      TESSERA_TRY(const Ended ended, run_process(with_root(words), kMostForAnswer, true));
      if (ended.stopped) return fault("launch: told to stop while hosts were asked");
      if (ended.exit_code != 0 || ended.signal != 0) {
        silent_.push_back(
            ended.timed_out
                ? fmt::format("{} (none within {} s)", host.name, kMostForAnswer.count() / 1000)
                : fmt::format("{} (mpirun cannot start a process there)", host.name));
        continue;
      }
      ranks += host.ranks;
      answering_.push_back(fmt::format("{}:{}", host.name, host.ranks));
    }
    return options_.ranks ? std::min(ranks, *options_.ranks) : ranks;
  }

  std::vector<std::string> silent_hosts() const override { return silent_; }

  Result<int64_t> saved_step() override {
    FileSystem disk;
    int64_t newest = -1;
    for (const std::string& dir : {config_.checkpoint.dir, config_.checkpoint.fast.dir}) {
      if (dir.empty()) continue;
      TESSERA_TRY(const auto found, checkpoints_in(disk, dir));
      if (!found.empty()) newest = std::max(newest, found.back().step);
    }
    return newest;
  }

  Result<Ended> run(const LaunchTry& next) override {
    fmt::print(stderr, "launch: try {}: plan {} on {}, {}\n", next.number,
               short_line(next.plan.text),
               next.plan.ranks == kAnyRanks ? std::string("this machine")
                                            : fmt::format("{} ranks", next.plan.ranks),
               next.resumes_from < 0 ? std::string("from the beginning")
                                     : fmt::format("from step {}", next.resumes_from));
    if (!options_.network.empty() && !answering_.empty()) {
      std::string text;
      for (const std::string& host : answering_) text += host.substr(0, host.rfind(':')) + "\n";
      TESSERA_TRY_VOID(write_file(hosts_file(), text));
    }
    return run_process(words_of(next));
  }

  Status log(const LaunchEvent& event) override {
    const int64_t now = std::chrono::duration_cast<std::chrono::seconds>(
                            std::chrono::system_clock::now().time_since_epoch())
                            .count();
    const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(log_.c_str(), "ae"), std::fclose);
    const std::string line = to_json_line(event, now);
    if (file == nullptr || std::fwrite(line.data(), 1, line.size(), file.get()) != line.size() ||
        std::fflush(file.get()) != 0) {
      return fault(fmt::format("launch: cannot write the log {}", log_));
    }
    return {};
  }

 private:
  // Adds the option with which Open MPI allows the root user to run programs.
  static std::vector<std::string> with_root(std::vector<std::string> words) {
    if (::geteuid() == 0) words.insert(words.begin() + 1, "--allow-run-as-root");
    return words;
  }

  // The hosts of the running try, in the order in which mpirun fills them.
  std::string hosts_file() const { return config_.checkpoint.dir + "/hosts.txt"; }

  std::vector<std::string> words_of(const LaunchTry& next) const {
    std::error_code error;
    const std::string program = std::filesystem::read_symlink("/proc/self/exe", error).string();
    std::vector<std::string> train{program, "train", options_.run_file, "--resume"};
    if (!options_.plans.empty()) train.insert(train.end(), {"--plan", next.plan.text});
    if (!options_.network.empty()) {
      train.insert(train.end(), {"--network", options_.network});
      if (!answering_.empty()) train.insert(train.end(), {"--hosts", hosts_file()});
    }
    for (const std::string& assignment : options_.assignments) {
      train.emplace_back("--set");
      train.push_back(assignment);
    }
    if (!options_.ranks && hosts_.empty()) return train;
    const std::string ranks = std::to_string(next.plan.ranks);
    if (next.plan.text == kAuto) train.insert(train.end(), {"--ranks", ranks});
    std::vector<std::string> words;
    // NOLINTNEXTLINE(concurrency-mt-unsafe): nothing changes the environment
    if (std::getenv("SLURM_JOB_ID") != nullptr && !find_program("srun").empty()) {
      words = {"srun", "--ntasks", ranks};
    } else {
      words = with_root({"mpirun", "--oversubscribe", "-n", ranks});
      if (!answering_.empty()) words.insert(words.end(), {"--host", join(answering_, ",")});
    }
    words.insert(words.end(), train.begin(), train.end());
    return words;
  }

  const LaunchOptions& options_;
  const RunConfig& config_;
  std::vector<Host> hosts_;
  std::vector<std::string> answering_, silent_;
  std::string log_;
};

Status check_launcher(const LaunchOptions& options) {
  if (!options.ranks && options.hosts.empty()) return {};
  if (!find_program("mpirun").empty() || !find_program("srun").empty()) return {};
  return invalid_input("launch: -n and --host need mpirun or srun, found neither");
}

}  // namespace

Result<int> launch(const LaunchOptions& options) {
  TESSERA_TRY(RunConfig config, load_run_config(options.run_file));
  for (const std::string& assignment : options.assignments)
    TESSERA_TRY_VOID(set_run_key(config, assignment));
  TESSERA_TRY_VOID(check_run_config(config));
  if (config.checkpoint.dir.empty()) {
    return invalid_input(fmt::format(
        "{}: launch: expected the key 'checkpoint.dir', for example checkpoint = {{ dir = "
        "\"checkpoints\", every = 50 }}",
        config.file));
  }
  TESSERA_TRY_VOID(check_launcher(options));
  std::vector<Host> hosts;
  for (const std::string& text : options.hosts) {
    TESSERA_TRY(Host host, parse_host(text));
    hosts.push_back(std::move(host));
  }
  TESSERA_TRY(const std::vector<LaunchPlan> plans, plans_of(options, config));
  FileSystem disk;
  TESSERA_TRY_VOID(disk.make_folder(config.checkpoint.dir));
  Machine machine(options, config, std::move(hosts),
                  options.log.empty() ? config.checkpoint.dir + "/launch.jsonl" : options.log);
  TESSERA_TRY(const LaunchSummary summary, ::tessera::launch(plans, options.tries, machine));
  fmt::print(
      stderr, "launch: done after {} and {}\n",
      summary.tries == 1 ? std::string("1 try") : fmt::format("{} tries", summary.tries),
      summary.losses == 1 ? std::string("1 loss") : fmt::format("{} losses", summary.losses));
  return 0;
}

}  // namespace tessera::cli::with_runtime
