// tessera cluster serve, submit, status, explain, cancel, drain, replay: a live controller.
#include "tessera/cli/with_planning/cluster_live.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "tessera/base/json_text.h"
#include "tessera/base/one_line.h"
#include "tessera/base/text.h"
#include "tessera/cli/output.h"
#include "tessera/cli/with_planning/job_sizes.h"
#include "tessera/orchestrate/live/server.h"
#include "tessera/orchestrate/live/service.h"
#include "tessera/orchestrate/share/policy.h"

namespace tessera::cli {
namespace {

using Answer = nlohmann::json;

struct LiveOptions {
  std::string target;  // a run file, job, node or journal
  std::string folder = ".tessera-cluster";
  std::string backend = "processes", cluster, policy = "default";
  uint64_t seed = 1;
  double round_s = 5;
  std::string listen, token;  // HOST:PORT, and the file with its token
  bool until_idle = false;
  std::string name, plan, speeds;
  int64_t gpus = 1;
  std::optional<int64_t> least, most;
  std::optional<double> deadline_s;
  bool json = false;
};

volatile std::sig_atomic_t told_to_end = 0;
void note_end(int) { told_to_end = 1; }

double unix_time_s() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string absolute(const std::string& path) {
  return std::filesystem::absolute(path).lexically_normal().string();
}

std::string socket_of(const LiveOptions& options) { return options.folder + "/socket"; }

Result<std::string> read_token(const std::string& path) {
  std::ifstream in(path);
  std::string token;
  if (!in || !std::getline(in, token))
    return invalid_input(path + ": expected a file with a token on its first line, found none");
  return token;
}

Result<int> serve(const LiveOptions& options) {
  // The words are checked before anything is written or started.
  std::vector<share::Server> servers;
  std::string where = socket_of(options);
  if (!options.listen.empty()) {
    if (options.token.empty())
      return invalid_input("cluster serve: expected --token FILE beside --listen, found none");
    TESSERA_TRY(const std::string token, read_token(options.token));
    TESSERA_TRY(share::Server remote, share::Server::on_tcp(options.listen, token));
    where += fmt::format(" and port {}", remote.port());
    servers.push_back(std::move(remote));
  }
  TESSERA_TRY(
      share::Service service,
      share::Service::open({.folder = options.folder,
                            .backend = options.backend,
                            .cluster = options.cluster,
                            .policy = options.policy,
                            .seed = options.seed,
                            .program = std::filesystem::read_symlink("/proc/self/exe").string(),
                            .now_s = unix_time_s}));
  TESSERA_TRY(share::Server local, share::Server::on_unix(socket_of(options)));
  servers.push_back(std::move(local));
  struct sigaction action {};
  action.sa_handler = note_end;
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
  fmt::print(stderr, "cluster serve: {} under {}, listening on {}\n", service.cluster(),
             options.policy, where);
  using Steady = std::chrono::steady_clock;
  const auto as_duration = [](double seconds) {
    return std::chrono::duration_cast<Steady::duration>(std::chrono::duration<double>(seconds));
  };
  const Steady::duration round = as_duration(options.round_s);
  // A server waits for a part of a round at most, so that none holds up another.
  const Steady::duration slice =
      servers.size() > 1 ? std::min<Steady::duration>(round, std::chrono::milliseconds(50)) : round;
  std::optional<Error> failed;
  const share::Handler handler = [&](const Answer& request) {
    auto answer = service.answer(request);
    if (answer) return *answer;
    failed = answer.error();
    return Answer{{"error", {{"code", exit_code(failed->code)}, {"message", failed->message}}}};
  };
  while (told_to_end == 0 && !(options.until_idle && service.is_idle())) {
    const auto end = Steady::now() + round;
    while (told_to_end == 0 && !failed && Steady::now() < end) {
      const bool is_settling = service.is_settling();
      const auto pause = is_settling ? std::min(slice, as_duration(service.patience_s())) : slice;
      for (share::Server& server : servers)
        server.serve_until(std::min(end, Steady::now() + pause), handler);
      if (is_settling && !failed) TESSERA_TRY_VOID(service.settle());
    }
    if (failed) return tl::unexpected<Error>(*failed);
    TESSERA_TRY_VOID(service.round());
  }
  return 0;
}

// Sends a request to the controller, and returns its answer. Errors: the answer's.
Result<Answer> ask(const LiveOptions& options, Answer request) {
  if (!options.token.empty()) {
    TESSERA_TRY(request["token"], read_token(options.token));
  }
  TESSERA_TRY(
      const Answer answer,
      share::ask_server(options.listen.empty() ? socket_of(options) : options.listen, request));
  const auto error = answer.find("error");
  if (error == answer.end() || error->is_string()) return answer;
  const std::string message = error->value("message", std::string("an error without a message"));
  switch (error->value("code", 2)) {
    case 1: return check_failed(message);
    case 3: return fault(message);
    default: return invalid_input(message);
  }
}

Result<Answer> ask_to_submit(const LiveOptions& options) {
  Answer request{{"do", "submit"},
                 {"run", absolute(options.target)},
                 {"folder", std::filesystem::current_path().string()},
                 {"plan", options.plan},
                 {"gpus", options.gpus}};
  request["name"] =
      options.name.empty() ? std::filesystem::path(options.target).stem().string() : options.name;
  share::Submission job;
  job.run_file = options.target;
  job.plan = options.plan;
  job.gpus = job.least_gpus = job.most_gpus = static_cast<int>(options.gpus);
  if (job.is_elastic()) {
    job.least_gpus = static_cast<int>(options.least.value_or(1));
    job.most_gpus = static_cast<int>(options.most.value_or(options.gpus));
  }
  if (job.least_gpus <= job.gpus && job.gpus <= job.most_gpus) {
    TESSERA_TRY(const JobSizes sizes, sizes_of_job(job));
    for (const std::string& why : sizes.left_out)
      fmt::print(stderr, "note: the job will not run on {}\n", message_line(why));
    if (!sizes.sizes.empty()) request["sizes"] = sizes.sizes;
  }
  if (!options.speeds.empty()) {
    TESSERA_TRY(const auto predicted, predicted_speeds(job, options.speeds));
    for (const auto& [gpus, steps_per_s] : predicted)
      request["predicted"].push_back({gpus, steps_per_s});
  }
  if (options.least) request["least"] = *options.least;
  if (options.most) request["most"] = *options.most;
  if (options.deadline_s) request["deadline_s"] = *options.deadline_s;
  return ask(options, request);
}

std::string jobs_table(const Answer& status) {
  Table table({"job", "state", "GPUs", "nodes", "step", "changes", "why"});
  for (const Answer& job : status.at("jobs")) {
    int gpus = 0;
    std::vector<std::string> nodes;
    for (const Answer& part : job.at("nodes")) {
      gpus += part.at(1).get<int>();
      nodes.push_back(fmt::format("{}:{}", part.at(0).get<int>(), part.at(1).get<int>()));
    }
    table.add(
        {job.at("name"), job.at("state"),
         fmt::format("{} of {}", gpus, job.at("asks_for").get<int>()), join(nodes, " "),
         fmt::format("{} of {}", job.at("step").get<int64_t>(), job.at("steps").get<int64_t>()),
         fmt::format("{}", job.at("changes").get<int>()),
         job.value("error", job.value("waits_for", ""))});
  }
  return table.to_string();
}

Result<int> say(const LiveOptions& options, const Answer& answer, const std::string& text) {
  if (!options.json) return print(text);
  nlohmann::ordered_json out = answer;
  return print(dumped(out) + "\n");
}

Result<int> replay(const LiveOptions& options) {
  const std::string path = options.target.empty() ? options.folder + "/journal" : options.target;
  TESSERA_TRY(const share::Replayed replayed, share::replay_journal(path));
  const Answer out{
      {"jobs", replayed.jobs}, {"rounds", replayed.rounds}, {"decisions", replayed.decisions}};
  return say(options, out,
             fmt::format("{}: {} of {} in {}: all are decided again as recorded\n", path,
                         plural(static_cast<int64_t>(replayed.decisions), "decision"),
                         plural(static_cast<int64_t>(replayed.jobs), "job"),
                         plural(static_cast<int64_t>(replayed.rounds), "round")));
}

Result<int> submit(const LiveOptions& options) {
  TESSERA_TRY(const Answer answer, ask_to_submit(options));
  return say(options, answer,
             fmt::format("submitted {}\n", answer.at("submitted").get<std::string>()));
}

Result<int> status(const LiveOptions& options) {
  TESSERA_TRY(const Answer answer, ask(options, {{"do", "status"}}));
  return say(options, answer, jobs_table(answer));
}

Result<int> explain(const LiveOptions& options) {
  TESSERA_TRY(const Answer answer, ask(options, {{"do", "explain"}, {"job", options.target}}));
  const std::string why = answer.value("error", answer.value("waits_for", ""));
  return say(options, answer,
             fmt::format("{} is {}{}{}\n", options.target, answer.at("state").get<std::string>(),
                         why.empty() ? "" : ": ", why));
}

Result<int> cancel(const LiveOptions& options) {
  TESSERA_TRY(const Answer answer, ask(options, {{"do", "cancel"}, {"job", options.target}}));
  return say(options, answer, fmt::format("cancelled {}\n", options.target));
}

// Returns a node as a request has it: its number, or its name.
Answer node_in(const LiveOptions& options) {
  const auto number = parse_int(options.target);
  return number ? Answer(*number) : Answer(options.target);
}

Result<int> resume(const LiveOptions& options) {
  TESSERA_TRY(const Answer answer, ask(options, {{"do", "resume"}, {"node", node_in(options)}}));
  return say(options, answer, fmt::format("resumed node {}\n", options.target));
}

Result<int> drain(const LiveOptions& options) {
  TESSERA_TRY(const Answer answer, ask(options, {{"do", "drain"}, {"node", node_in(options)}}));
  return say(options, answer, fmt::format("drained node {}\n", options.target));
}

void add_folder(Command& command, LiveOptions& options) {
  command.option("--dir", options.folder,
                 "Folder of the live controller: journal, socket, logs; default .tessera-cluster");
}

// Adds the options of a command that asks a controller.
void add_controller(Command& command, LiveOptions& options) {
  add_folder(command, options);
  command.option("--listen", options.listen, "HOST:PORT of the controller, in place of --dir");
  command.option("--token", options.token, "File with the token of --listen on its first line");
  command.flag("--json", options.json, "Print JSON");
}

void add_serve(Command& cluster) {
  const auto options = std::make_shared<LiveOptions>();
  Command command = cluster.command("serve", "Run jobs, as a policy decides");
  command.option("--cluster", options->cluster,
                 "Nodes x GPUs, as 1x4; not needed where the back end knows its nodes");
  add_policy(command, options->policy, options->seed);
  command.option("--backend", options->backend,
                 "Where jobs run: processes (of this machine, default) or slurm");
  command.option("--round", options->round_s, "Seconds between decisions; default 5")
      .at_least(0.001);
  add_folder(command, *options);
  command.option("--listen", options->listen, "Also listen on this HOST:PORT");
  command.option("--token", options->token, "File with the token of --listen on its first line");
  command.flag("--until-idle", options->until_idle, "End when all jobs have ended");
  command.footer(policies_text() +
                 "\nStarted again with the same words it goes on where it stood.\n\nExample:\n"
                 "  tessera cluster serve --cluster 1x4 --policy optimus &\n");
  command.action([options] { return serve(*options); });
}

void add_submit(Command& cluster) {
  const auto options = std::make_shared<LiveOptions>();
  Command command = cluster.command("submit", "Ask the controller to run a job");
  command.option("RUN.toml", options->target, "Run file that writes checkpoints").required();
  command.option("--name", options->name, "Name of the job; default: of the run file");
  command.option("--gpus", options->gpus, "GPUs that the job asks for; default 1").ranks();
  command.option("--plan", options->plan,
                 "The plan, with {} for the number of GPUs; default: the run's");
  command.option("--least", options->least, "Fewest GPUs of a plan with {}; default 1").ranks();
  command.option("--most", options->most, "Most GPUs; default: --gpus").ranks();
  command.option(
      "--speeds", options->speeds,
      "Table of tessera cluster speeds with the job's plan: predicted speeds by number of "
      "GPUs");
  command.option("--deadline", options->deadline_s, "Seconds in which it must end").at_least(0);
  add_controller(command, *options);
  command.footer(
      "A job whose plan has {} changes its size while it trains, and keeps its batch.\n\n"
      "Example:\n"
      "  tessera cluster submit run.toml --gpus 4 --plan 'data_parallel({})'\n");
  command.action([options] { return submit(*options); });
}

// A command that asks the controller about something.
struct Asking {
  const char *name, *help, *target, *target_help, *example;
  Result<int> (*run)(const LiveOptions& options);
};
constexpr std::array<Asking, 5> kAsking = {
    {{"status", "List the jobs, with why they wait", nullptr, nullptr, "status", status},
     {"explain", "Say how a job stands, and why it waits or failed", "JOB", "Name of a job",
      "explain run", explain},
     {"cancel", "End a job", "JOB", "Name of a job", "cancel run", cancel},
     {"drain", "Move all jobs away from a node, and give it no others", "NODE",
      "Number or name of a node", "drain 3", drain},
     {"resume", "Give jobs to a drained node again", "NODE", "Number or name of a node", "resume 3",
      resume}}};

void add_asking(Command& cluster, const Asking& asking) {
  const auto options = std::make_shared<LiveOptions>();
  Command command = cluster.command(asking.name, asking.help);
  if (asking.target != nullptr)
    command.option(asking.target, options->target, asking.target_help).required();
  add_controller(command, *options);
  command.footer(fmt::format("Example:\n  tessera cluster {}\n", asking.example));
  command.action([options, run = asking.run] { return run(*options); });
}

void add_replay(Command& cluster) {
  const auto options = std::make_shared<LiveOptions>();
  Command command = cluster.command("replay", "Decide again what a journal records");
  command.option("JOURNAL", options->target, "Default: that of --dir");
  add_folder(command, *options);
  command.flag("--json", options->json, "Print JSON");
  command.footer(
      "Exit code 1: a decision differs from the recorded one.\n\nExample:\n"
      "  tessera cluster replay --dir .tessera-cluster\n");
  command.action([options] { return replay(*options); });
}

}  // namespace

void add_policy(Command& command, std::string& policy, uint64_t& seed) {
  std::vector<std::string> names;
  for (const share::PolicyInfo& one : share::policies()) names.push_back(one.name);
  command.option("--policy", policy, "Who gets which GPUs; default: default").one_of(names);
  command.option("--seed", seed, "Of policies that draw, and of generators").at_least(0);
}

std::string policies_text() {
  std::string out = "Policies:\n";
  for (const share::PolicyInfo& policy : share::policies())
    out += fmt::format("  {:<17} {}\n", policy.name, policy.summary);
  return out;
}

void add_cluster_live(Command& cluster) {
  add_serve(cluster);
  add_submit(cluster);
  for (const Asking& asking : kAsking) add_asking(cluster, asking);
  add_replay(cluster);
}

}  // namespace tessera::cli
