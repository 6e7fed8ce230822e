#include "tessera/orchestrate/live/service.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/base/json_text.h"
#include "tessera/base/text.h"
#include "tessera/orchestrate/live/backend_table.h"
#include "tessera/orchestrate/live/journal.h"
#include "tessera/orchestrate/live/live_workers.h"
#include "tessera/orchestrate/share/controller.h"

namespace tessera::share {
namespace {

using Json = nlohmann::json;

Json to_json(const std::vector<Change>& changes) {
  Json out = Json::array();
  for (const Change& change : changes) {
    Json parts = Json::array();
    for (const Allocation::Part& part : change.allocation.parts)
      parts.push_back({part.node, part.gpus});
    out.push_back({change.job, parts});
  }
  return out;
}

Json error_answer(const Error& error) {
  return {{"error", {{"code", exit_code(error.code)}, {"message", error.message}}}};
}

// Returns the nodes of a back end as the first event of a journal has them.
Json to_json(const std::vector<BackendNode>& nodes) {
  Json out = Json::array();
  for (const BackendNode& node : nodes) out.push_back({node.name, node.type, node.gpus});
  return out;
}

// Returns the machines that the first event of a journal describes, and the names of their nodes.
Result<std::pair<Machines, std::vector<std::string>>> machines_in(const Json& head) {
  std::pair<Machines, std::vector<std::string>> out;
  auto& [machines, names] = out;
  const auto nodes = head.find("nodes");
  if (nodes == head.end()) {
    TESSERA_TRY(machines, parse_machines(head.value("cluster", "")));
    return out;
  }
  for (const Json& node : *nodes) {
    names.push_back(node.at(0).get<std::string>());
    const auto type = node.at(1).get<std::string>();
    const auto at = std::find(machines.types.begin(), machines.types.end(), type);
    machines.nodes.push_back(
        {node.at(2).get<int>(), static_cast<int>(at - machines.types.begin())});
    if (at == machines.types.end()) machines.types.push_back(type);
  }
  return out;
}

// Checks that --cluster, if it is given, describes the nodes that the back end has.
Status check_cluster(const ServiceOptions& options, const std::vector<BackendNode>& nodes) {
  if (options.cluster.empty() && nodes.empty())
    return invalid_input("cluster serve: expected --cluster NODESxGPUS, as 1x4, found none");
  if (options.cluster.empty() || nodes.empty()) return {};
  TESSERA_TRY(const Machines asked, parse_machines(options.cluster));
  const bool is_same =
      std::equal(asked.nodes.begin(), asked.nodes.end(), nodes.begin(), nodes.end(),
                 [](const auto& a, const BackendNode& b) { return a.gpus == b.gpus; });
  if (is_same) return {};
  int gpus = 0;
  for (const BackendNode& node : nodes) gpus += node.gpus;
  return invalid_input(
      fmt::format("--cluster: expected the {} nodes with {} GPUs that {} has, or nothing, found "
                  "'{}'",
                  nodes.size(), gpus, options.backend, options.cluster));
}

// Returns a word that no other journal has.
std::string new_id() {
  std::random_device draw;
  return fmt::format("{:08x}{:08x}", draw(), draw());
}

// The jobs and the scheduler, which requests and a journal change.
class State {
 public:
  // Makes the scheduler that the first event of a journal describes.
  static Result<std::unique_ptr<State>> open(const Json& head, std::string folder) {
    const auto text = [&](const char* key) { return head.value(key, std::string()); };
    auto out = std::unique_ptr<State>(new State);
    try {
      TESSERA_TRY(std::tie(out->machines_, out->nodes_), machines_in(head));
    } catch (const Json::exception&) {
      return invalid_input("expected nodes with a name, a type and GPUs, found another form");
    }
    for (const Machines::Node& node : out->machines_.nodes) out->gpus_.push_back(node.gpus);
    TESSERA_TRY(out->policy_,
                make_policy(text("policy"), {.seed = head.value("seed", uint64_t{1})}));
    out->workers_ = std::make_unique<LiveWorkers>(std::move(folder), out->machines_);
    out->cluster_ = out->nodes_.empty()
                        ? text("cluster")
                        : fmt::format("{} nodes with {} GPUs of {}", out->nodes_.size(),
                                      out->machines_.gpus(), text("backend"));
    ControllerOptions options;
    options.round_s = 0;
    out->rounds_ = std::make_unique<Rounds>(out->jobs_, out->machines_, *out->policy_,
                                            *out->workers_, options);
    return out;
  }

  // Checks a submission against the jobs and the machines.
  Status check(const Submission& job) const {
    if (find(job.name) >= 0) {
      return invalid_input(
          fmt::format("name: expected a name of its own, found a second job '{}'", job.name));
    }
    for (size_t i = 0; i < jobs_.size(); ++i) {
      const LiveState is = workers_->state(static_cast<int>(i));
      const bool is_over = is != LiveState::kWaiting && is != LiveState::kRunning;
      if (is_over || workers_->submission(static_cast<int>(i)).checkpoints != job.checkpoints)
        continue;
      return invalid_input(fmt::format(
          "{}: checkpoint.dir: expected a folder of its own, found that of job '{}', {}",
          job.run_file, jobs_[i].name, job.checkpoints));
    }
    const int all = std::accumulate(gpus_.begin(), gpus_.end(), 0);
    for (const auto& [key, gpus] :
         {std::pair("gpus", job.gpus), std::pair("most", job.most_gpus)}) {
      if (gpus > all) {
        return invalid_input(
            fmt::format("{}: expected at most the cluster's {}, found {}", key, all, gpus));
      }
    }
    return {};
  }

  void submit(const Submission& job, double at_s) {
    JobSpec spec;
    spec.name = job.name;
    spec.submit_s = at_s;
    spec.gpus = job.gpus;
    spec.deadline_s = job.deadline_s < kNever ? at_s + job.deadline_s : kNever;
    spec.application = job.run_file;
    spec.model = workers_->add(job);
    jobs_.push_back(std::move(spec));
  }

  // Closes or opens a node to jobs. A node that a request has drained stays closed.
  void drain(int node) {
    close(node);
    drained_.insert(node);
  }
  void take_out(int node) {
    close(node);
    out_.insert(node);
  }
  void resume(int node) {
    drained_.erase(node);
    open_again(node);
  }
  void bring_back(int node) {
    out_.erase(node);
    open_again(node);
  }
  void open_again(int node) {
    if (drained_.count(node) > 0 || out_.count(node) > 0) return;
    machines_.nodes[static_cast<size_t>(node)].gpus = gpus_[static_cast<size_t>(node)];
    rounds_->fill_node(node, gpus_[static_cast<size_t>(node)]);
  }
  const std::set<int>& out() const { return out_; }

  // Does a round with what was seen, and returns what was decided.
  std::vector<Change> round(double at_s, Observation observation) {
    workers_->tell(std::move(observation));
    rounds_->round(at_s);
    shown_ = jobs_.size();
    rounds_->outcome().queue.clear();
    return std::exchange(rounds_->outcome().changes, {});
  }

  // Applies an event of a journal. Errors: a decision that differs from the recorded one.
  Status apply(const JournalEvent& event) {
    const auto body = parse_json(event.body);
    if (!body || !body->is_object())
      return invalid_input("expected an event that is a JSON object, found another");
    static const std::map<std::string_view, Status (State::*)(double, const Json&)> kKinds = {
        {"submit", &State::apply_submit}, {"cancel", &State::apply_cancel},
        {"drain", &State::apply_drain},   {"resume", &State::apply_resume},
        {"out", &State::apply_out},       {"back", &State::apply_back},
        {"round", &State::apply_round}};
    const auto kind = kKinds.find(event.kind);
    if (kind == kKinds.end()) {
      return invalid_input(
          fmt::format("expected an event of a known kind, found '{}'", event.kind));
    }
    try {
      return (this->*kind->second)(event.at_s, *body);
    } catch (const Json::exception&) {
      return invalid_input(
          fmt::format("expected the texts and numbers of a {}, found another type", event.kind));
    }
  }

  Status apply(const std::vector<JournalEvent>& events, const std::string& path) {
    for (size_t i = 1; i < events.size(); ++i) {
      if (const Status done = apply(events[i]); !done) {
        Error error = done.error();
        error.message = fmt::format("{}: event {}: {}", path, i + 1, error.message);
        return tl::unexpected<Error>(error);
      }
    }
    return {};
  }

  int find(const std::string& name) const {
    const auto found = std::find_if(jobs_.begin(), jobs_.end(),
                                    [&](const JobSpec& job) { return job.name == name; });
    return found == jobs_.end() ? -1 : static_cast<int>(found - jobs_.begin());
  }

  std::string names() const {
    std::vector<std::string> out;
    for (const JobSpec& job : jobs_) out.push_back(job.name);
    return out.empty() ? "no jobs" : join(out, ", ");
  }

  Json job_json(int job) const {
    const JobSpec& spec = jobs_[static_cast<size_t>(job)];
    const Usage& usage = workers_->usage(job);
    Json nodes = Json::array();
    for (const Allocation::Part& part : rounds_->allocation(job).parts)
      nodes.push_back({part.node, part.gpus});
    Json out{{"name", spec.name},
             {"state", state_name(workers_->state(job))},
             {"asks_for", spec.gpus},
             {"nodes", nodes},
             {"step", static_cast<int64_t>(workers_->run(job).done)},
             {"steps", workers_->submission(job).steps},
             {"submit_s", spec.submit_s},
             {"changes", usage.switches},
             {"gpu_s", usage.gpu_seconds}};
    if (!workers_->error(job).empty()) out["error"] = workers_->error(job);
    if (workers_->state(job) == LiveState::kWaiting && static_cast<size_t>(job) < shown_)
      out["waits_for"] = rounds_->reason(job).text + closed_text();
    if (const std::string held = workers_->waits_for(job); !held.empty()) out["waits_for"] = held;
    return out;
  }

  // Returns a clause that says which nodes are closed; "" if none is.
  std::string closed_text() const {
    std::vector<std::string> closed;
    for (const int node : drained_) closed.push_back(name_of(node) + " is drained");
    for (const int node : out_) closed.push_back(name_of(node) + " is out of service");
    return closed.empty() ? "" : "; node " + join(closed, ", node ");
  }
  std::string name_of(int node) const {
    return nodes_.empty() ? std::to_string(node) : nodes_[static_cast<size_t>(node)];
  }
  bool is_drained(int node) const { return drained_.count(node) > 0; }

  Json status(double now_s) const {
    Json jobs = Json::array(), nodes = Json::array();
    for (size_t i = 0; i < jobs_.size(); ++i) jobs.push_back(job_json(static_cast<int>(i)));
    for (const Machines::Node& node : machines_.nodes) nodes.push_back(node.gpus);
    Json out{{"now_s", now_s}, {"jobs", jobs}, {"nodes", nodes}};
    if (!nodes_.empty()) out["node_names"] = nodes_;
    out["drained"] = drained_;
    out["out_of_service"] = out_;
    return out;
  }

  bool is_idle() const { return !jobs_.empty() && rounds_->done() == jobs_.size(); }
  // Returns whether a round can find or change something.
  bool has_work() const { return rounds_->done() < jobs_.size(); }
  size_t shown() const { return shown_; }
  LiveWorkers& workers() { return *workers_; }
  const Machines& machines() const { return machines_; }
  const std::vector<std::string>& nodes() const { return nodes_; }
  const std::string& cluster() const { return cluster_; }
  Replayed replayed() const { return {jobs_.size(), rounds_replayed_, decisions_replayed_}; }

 private:
  State() = default;

  Status apply_submit(double at_s, const Json& body) {
    TESSERA_TRY(const Submission job, parse_submission(body));
    submit(job, at_s);
    return {};
  }

  Status apply_cancel(double, const Json& body) {
    const int job = find(body.value("job", ""));
    if (job >= 0) workers_->cancel(job);
    return {};
  }

  // Returns the node of an event. `is_out`: whether it must be out of service; none: either.
  Result<int> node_in(const Json& body, std::optional<bool> is_out) const {
    const int node = body.value("node", -1);
    if (node < 0 || static_cast<size_t>(node) >= machines_.nodes.size() ||
        (is_out && *is_out != (out_.count(node) > 0)))
      return invalid_input("expected a node of the cluster, found another");
    return node;
  }
  Status apply_drain(double, const Json& body) {
    TESSERA_TRY(const int node, node_in(body, std::nullopt));
    drain(node);
    return {};
  }
  Status apply_resume(double, const Json& body) {
    TESSERA_TRY(const int node, node_in(body, std::nullopt));
    if (drained_.count(node) == 0)
      return invalid_input("expected a node that is drained, found another");
    resume(node);
    return {};
  }
  Status apply_out(double, const Json& body) {
    TESSERA_TRY(const int node, node_in(body, false));
    take_out(node);
    return {};
  }
  Status apply_back(double, const Json& body) {
    TESSERA_TRY(const int node, node_in(body, true));
    bring_back(node);
    return {};
  }

  Status apply_round(double at_s, const Json& body) {
    TESSERA_TRY(Observation seen, parse_observation(body.value("seen", Json()), jobs_.size()));
    const Json decided = to_json(round(at_s, std::move(seen)));
    const Json recorded = body.value("decided", Json::array());
    ++rounds_replayed_;
    decisions_replayed_ += decided.size();
    if (decided == recorded) return {};
    return check_failed(
        fmt::format("the round at {} s: expected the recorded decision {}, the policy decides {}",
                    at_s, dumped(recorded), dumped(decided)));
  }

  void close(int node) {
    if (drained_.count(node) > 0 || out_.count(node) > 0) return;
    rounds_->empty_node(node);
    machines_.nodes[static_cast<size_t>(node)].gpus = 0;
  }

  Machines machines_;
  std::vector<std::string> nodes_;  // names by number; none where nodes have none
  std::vector<int> gpus_;           // of each node when it is open
  std::set<int> drained_, out_;     // nodes that are closed by a request, and by the back end
  std::string cluster_;
  std::unique_ptr<Policy> policy_;
  std::unique_ptr<LiveWorkers> workers_;
  std::vector<JobSpec> jobs_;
  std::unique_ptr<Rounds> rounds_;
  size_t shown_ = 0;  // jobs that were there in the last round
  size_t rounds_replayed_ = 0, decisions_replayed_ = 0;
};

// Returns the body of the first event of a journal.
Result<Json> head_of(const std::vector<JournalEvent>& events, const std::string& path) {
  const auto head = events.empty() || events.front().kind != "open"
                        ? std::optional<Json>()
                        : parse_json(events.front().body);
  if (!head || !head->is_object())
    return invalid_input(path + ": expected a journal that begins with its cluster, found another");
  return *head;
}

}  // namespace

struct Service::Impl {
  std::function<double()> clock;
  double began_s = 0;  // when the journal began, in seconds since 1970
  double last_s = 0;   // of the last event
  Journal journal;
  std::unique_ptr<State> state;

  // Returns the time for the next event, which is later than all others.
  double now() {
    last_s = std::max(std::nextafter(last_s, kNever), clock() - began_s);
    return last_s;
  }

  Status record(double at_s, const char* kind, const Json& body) {
    return journal.append({at_s, kind, dumped(body)});
  }

  Result<Json> submit(const Json& request) {
    TESSERA_TRY(Submission job, parse_submission(request));
    TESSERA_TRY_VOID(read_run(job));
    TESSERA_TRY_VOID(state->check(job));
    const double at_s = now();
    if (const Status done = record(at_s, "submit", share::to_json(job)); !done)
      return tl::unexpected<Error>(done.error());
    state->submit(job, at_s);
    return Json{{"submitted", job.name}};
  }

  Result<int> job_of(const Json& request) const {
    const std::string name = request.value("job", std::string());
    const int job = state->find(name);
    if (job >= 0) return job;
    return invalid_input(fmt::format("expected a job of {}, found '{}'", state->names(), name));
  }

  Result<Json> cancel(const Json& request) {
    TESSERA_TRY(const int job, job_of(request));
    const LiveState is = state->workers().state(job);
    if (is != LiveState::kWaiting && is != LiveState::kRunning) {
      return invalid_input(fmt::format("expected a job that has not ended, found that '{}' is {}",
                                       request.value("job", ""), state_name(is)));
    }
    TESSERA_TRY_VOID(record(now(), "cancel", {{"job", request.value("job", "")}}));
    state->workers().cancel(job);
    return Json{{"cancelled", request.value("job", "")}};
  }

  // Returns the number of the node that the request has by its name or number.
  Result<int> node_of(const Json& request) const {
    const Json node = request.value("node", Json());
    const auto& names = state->nodes();
    const std::string name = node.is_string() ? node.get<std::string>() : "";
    const auto found = std::find(names.begin(), names.end(), name);
    if (found != names.end()) return static_cast<int>(found - names.begin());
    const int count = static_cast<int>(state->machines().nodes.size());
    if (node.is_number_integer() && node.get<int64_t>() >= 0 && node.get<int64_t>() < count)
      return node.get<int>();
    return invalid_input(
        fmt::format("expected a node from 0 to {}{}, found {}", count - 1,
                    names.empty() ? "" : fmt::format(" or its name, as {}", names.front()),
                    node.is_null() ? "none" : shown(node)));
  }

  Result<Json> drain(const Json& request) {
    TESSERA_TRY(const int node, node_of(request));
    TESSERA_TRY_VOID(record(now(), "drain", {{"node", node}}));
    state->drain(node);
    TESSERA_TRY_VOID(state->workers().carry_out());
    return Json{{"drained", node}};
  }

  Result<Json> status(const Json&) { return state->status(clock() - began_s); }

  Result<Json> resume(const Json& request) {
    TESSERA_TRY(const int node, node_of(request));
    if (!state->is_drained(node)) {
      return invalid_input(
          fmt::format("expected a node that is drained, found {}", state->name_of(node)));
    }
    TESSERA_TRY_VOID(record(now(), "resume", {{"node", node}}));
    state->resume(node);
    return Json{{"resumed", node}};
  }

  // Closes the nodes that the back end has taken out of service since the last round, and opens those
  // that are back.
  Status follow_nodes() {
    const std::set<int> before = state->out(), after = state->workers().nodes_out();
    for (const int node : after) {
      if (before.count(node) > 0) continue;
      TESSERA_TRY_VOID(record(now(), "out", {{"node", node}}));
      state->take_out(node);
    }
    for (const int node : before) {
      if (after.count(node) > 0) continue;
      TESSERA_TRY_VOID(record(now(), "back", {{"node", node}}));
      state->bring_back(node);
    }
    return {};
  }

  Result<Json> explain(const Json& request) {
    TESSERA_TRY(const int job, job_of(request));
    return state->job_json(job);
  }
};

Service::Service(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Service::Service(Service&&) noexcept = default;
Service& Service::operator=(Service&&) noexcept = default;
Service::~Service() = default;

Result<Service> Service::open(const ServiceOptions& options) {
  TESSERA_TRY(const BackendKind* kind, find_backend(options.backend));
  TESSERA_TRY(const std::vector<BackendNode> nodes, kind->nodes());
  const std::string path = options.folder + "/journal";
  if (!std::filesystem::exists(path)) TESSERA_TRY_VOID(check_cluster(options, nodes));
  std::error_code failed;
  std::filesystem::create_directories(options.folder, failed);
  if (failed)
    return fault(fmt::format("{}: cannot make the folder: {}", options.folder, failed.message()));
  std::filesystem::permissions(options.folder, std::filesystem::perms::owner_all, failed);
  TESSERA_TRY(Journal journal, Journal::open(path));
  TESSERA_TRY(std::vector<JournalEvent> events, journal.events());
  const Json own{{"backend", options.backend},
                 {"cluster", options.cluster},
                 {"policy", options.policy},
                 {"seed", options.seed}};
  if (events.empty()) {
    Json head = own;
    head["began_s"] = options.now_s();
    head["id"] = new_id();
    if (!nodes.empty()) head["nodes"] = to_json(nodes);
    // An unknown policy or cluster must not leave a journal behind that nothing can open.
    TESSERA_TRY_VOID(State::open(head, options.folder));
    events.push_back({0, "open", dumped(head)});
    TESSERA_TRY_VOID(journal.append(events.front()));
  }
  TESSERA_TRY(const Json head, head_of(events, path));
  for (const auto& [key, value] : own.items()) {
    if (head.value(key, Json()) != value) {
      return invalid_input(fmt::format("{}: expected the {} of the journal, {}, found {}", path,
                                       key, dumped(head.value(key, Json())), dumped(value)));
    }
  }
  TESSERA_TRY(auto state, State::open(head, options.folder));
  TESSERA_TRY_VOID(state->apply(events, path));
  TESSERA_TRY(auto backend, kind->make({.program = options.program,
                                        .folder = options.folder,
                                        .id = head.value("id", ""),
                                        .nodes = state->nodes()}));
  state->workers().run_on(std::move(backend));
  TESSERA_TRY_VOID(state->workers().carry_out());
  return Service(
      std::make_unique<Impl>(Impl{options.now_s, head.value("began_s", 0.0), events.back().at_s,
                                  std::move(journal), std::move(state)}));
}

Result<nlohmann::json> Service::answer(const nlohmann::json& request) {
  Impl& own = *impl_;
  const auto word = request.find("do");
  const std::string what =
      word != request.end() && word->is_string() ? word->get<std::string>() : "";
  static const std::map<std::string_view, Result<Json> (Impl::*)(const Json&)> kActions = {
      {"submit", &Impl::submit}, {"status", &Impl::status}, {"explain", &Impl::explain},
      {"cancel", &Impl::cancel}, {"drain", &Impl::drain},   {"resume", &Impl::resume}};
  const auto action = kActions.find(what);
  Result<Json> out = invalid_input(fmt::format(
      "do: expected submit, status, explain, cancel, drain or resume, found '{}'", what));
  try {
    if (action != kActions.end()) out = (own.*action->second)(request);
  } catch (const Json::exception&) {
    out = invalid_input("expected texts and numbers in the request, found another type");
  }
  if (out) return out;
  if (out.error().code == ErrorCode::kFault) return out;
  return error_answer(out.error());
}

Status Service::round() {
  Impl& own = *impl_;
  if (!own.state->has_work()) return {};
  TESSERA_TRY(Observation seen, own.state->workers().observe(own.state->shown()));
  TESSERA_TRY_VOID(own.follow_nodes());
  const Json seen_json = share::to_json(seen);
  const double at_s = own.now();
  const std::vector<Change> changes = own.state->round(at_s, std::move(seen));
  TESSERA_TRY_VOID(own.record(at_s, "round", {{"seen", seen_json}, {"decided", to_json(changes)}}));
  return own.state->workers().carry_out();
}

bool Service::is_settling() const { return impl_->state->workers().is_settling(); }
double Service::patience_s() const { return impl_->state->workers().patience_s(); }
Status Service::settle() { return impl_->state->workers().settle(); }

bool Service::is_idle() const { return impl_->state->is_idle(); }

const std::string& Service::cluster() const { return impl_->state->cluster(); }

Result<Replayed> replay_journal(const std::string& path) {
  TESSERA_TRY(const Journal journal, Journal::read(path));
  TESSERA_TRY(const std::vector<JournalEvent> events, journal.events());
  TESSERA_TRY(const Json head, head_of(events, path));
  TESSERA_TRY(const auto state, State::open(head, ""));
  TESSERA_TRY_VOID(state->apply(events, path));
  return state->replayed();
}

}  // namespace tessera::share
