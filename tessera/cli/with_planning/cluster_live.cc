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
#include <nlohmann/json.hpp>

#include "tessera/base/json_text.h"
#include "tessera/base/text.h"
#include "tessera/cli/output.h"
#include "tessera/orchestrate/live/server.h"
#include "tessera/orchestrate/live/service.h"

namespace tessera::cli {
namespace {

using Answer = nlohmann::json;

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
  if (options.cluster.empty())
    return invalid_input("cluster serve: expected --cluster NODESxGPUS, as 1x4, found none");
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
  fmt::print(stderr, "cluster serve: {} under {}, listening on {}\n", options.cluster,
             options.policy, where);
  const auto round = std::chrono::duration_cast<std::chrono::steady_clock::duration>(
      std::chrono::duration<double>(options.round_s));
  // A server waits for a part of a round at most, so that none holds up another.
  const auto slice = servers.size() > 1 ? std::min<std::chrono::steady_clock::duration>(
                                              round, std::chrono::milliseconds(50))
                                        : round;
  std::optional<Error> failed;
  const share::Handler handler = [&](const Answer& request) {
    auto answer = service.answer(request);
    if (answer) return *answer;
    failed = answer.error();
    return Answer{{"error", {{"code", exit_code(failed->code)}, {"message", failed->message}}}};
  };
  while (told_to_end == 0 && !(options.until_idle && service.is_idle())) {
    const auto end = std::chrono::steady_clock::now() + round;
    while (told_to_end == 0 && !failed && std::chrono::steady_clock::now() < end) {
      for (share::Server& server : servers)
        server.serve_until(std::min(end, std::chrono::steady_clock::now() + slice), handler);
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

Result<Answer> submit(const LiveOptions& options) {
  if (options.target.empty())
    return invalid_input("cluster submit: expected a run file, found none");
  if (options.plans.size() > 1 || options.gpus.size() > 1) {
    return invalid_input(
        fmt::format("cluster submit: expected one plan and one number of GPUs, found {} and {}",
                    options.plans.size(), options.gpus.size()));
  }
  Answer request{{"do", "submit"},
                 {"run", absolute(options.target)},
                 {"folder", std::filesystem::current_path().string()},
                 {"plan", options.plans.empty() ? "" : options.plans.front()},
                 {"gpus", options.gpus.empty() ? 1 : options.gpus.front()}};
  request["name"] =
      options.name.empty() ? std::filesystem::path(options.target).stem().string() : options.name;
  if (options.least) request["least"] = *options.least;
  if (options.most) request["most"] = *options.most;
  if (options.deadline_s) request["deadline_s"] = *options.deadline_s;
  return ask(options, request);
}

std::string jobs_table(const Answer& status) {
  Table table({"job", "state", "GPUs", "nodes", "step", "restarts", "why"});
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
         fmt::format("{}", job.at("restarts").get<int>()),
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

}  // namespace

const std::vector<std::string>& live_actions() {
  static const std::vector<std::string> all = {"serve",  "submit", "status", "explain",
                                               "cancel", "drain",  "replay"};
  return all;
}

void add_live_options(Command& command, LiveOptions& options) {
  command.option("--dir", options.folder,
                 "Folder of the live controller: journal, socket, logs; default .tessera-cluster");
  command.option("--listen", options.listen, "Also listen on, or ask at, this HOST:PORT");
  command.option("--token", options.token, "File with the token of --listen on its first line");
  command.flag("--until-idle", options.until_idle, "serve: end when all jobs have ended");
  command.option("--name", options.name, "submit: name of the job; default: of the run file");
  command
      .option("--gpus", options.gpus,
              "submit: GPUs that the job asks for; default 1. speeds: numbers of GPUs, as 1,2,4; "
              "default: 1, 2, 4, ... up to all")
      .delimiter(',')
      .one_value_each()
      .ranks();
  command
      .option("--plan", options.plans,
              "submit: the plan, with {} for the number of GPUs; default: the run's. speeds: "
              "NAME=PLAN, also with {micro}, the number of micro-batches that is fastest; default: "
              "auto")
      .one_value_each();
  command.option("--least", options.least, "submit: fewest GPUs of a plan with {}; default 1")
      .ranks();
  command.option("--most", options.most, "submit: most GPUs; default: --gpus").ranks();
  command.option("--deadline", options.deadline_s, "submit: seconds in which it must end")
      .at_least(0);
}

Result<int> run_live(const LiveOptions& options) {
  if (options.action == "serve") return serve(options);
  if (options.action == "replay") return replay(options);
  if (options.action == "submit") {
    TESSERA_TRY(const Answer answer, submit(options));
    return say(options, answer,
               fmt::format("submitted {}\n", answer.at("submitted").get<std::string>()));
  }
  if (options.action == "status") {
    TESSERA_TRY(const Answer answer, ask(options, {{"do", "status"}}));
    return say(options, answer, jobs_table(answer));
  }
  if (options.target.empty()) {
    return invalid_input(fmt::format("cluster {}: expected the name of a {}, found none",
                                     options.action, options.action == "drain" ? "node" : "job"));
  }
  if (options.action == "drain") {
    const auto node = parse_int(options.target);
    if (!node) {
      return invalid_input(
          fmt::format("cluster drain: expected the number of a node, found '{}'", options.target));
    }
    TESSERA_TRY(const Answer answer, ask(options, {{"do", "drain"}, {"node", *node}}));
    return say(options, answer, fmt::format("drained node {}\n", *node));
  }
  TESSERA_TRY(const Answer answer, ask(options, {{"do", options.action}, {"job", options.target}}));
  if (options.action == "cancel")
    return say(options, answer, fmt::format("cancelled {}\n", options.target));
  const std::string why = answer.value("error", answer.value("waits_for", ""));
  return say(options, answer,
             fmt::format("{} is {}{}{}\n", options.target, answer.at("state").get<std::string>(),
                         why.empty() ? "" : ": ", why));
}

}  // namespace tessera::cli
