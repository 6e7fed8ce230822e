#include "tessera/orchestrate/live/live_workers.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <utility>

#include "tessera/base/json_text.h"
#include "tessera/base/one_line.h"
#include "tessera/base/text.h"

namespace tessera::share {
namespace {

constexpr int kMostLosses = 3;  // without a step between them
// Steps in which a job does what it was told; more than the next two, because its log lags behind.
constexpr int64_t kMostSteps = 20;
constexpr std::array<std::string_view, 5> kStates = {"waiting", "running", "done", "failed",
                                                     "cancelled"};

// Returns the last error line of tessera in the log.
std::string error_in(const std::string& log_path) {
  std::ifstream in(log_path);
  std::string line, out;
  while (std::getline(in, line)) {
    if (line.starts_with("tessera: ")) out = line.substr(9);
  }
  return out;
}

}  // namespace

std::string_view state_name(LiveState state) { return kStates.at(static_cast<size_t>(state)); }

nlohmann::json to_json(const Observation& observation) {
  nlohmann::json seen = nlohmann::json::array(), ended = nlohmann::json::array();
  for (const auto& one : observation.seen)
    seen.push_back({one.job, one.step, one.gpus, one.steps_per_s});
  for (const auto& one : observation.ended)
    ended.push_back({one.job, std::string(state_name(one.state)), one.error});
  return {{"seen", seen}, {"ended", ended}};
}

Result<Observation> parse_observation(const nlohmann::json& json, size_t jobs) {
  Observation out;
  try {
    for (const auto& one : json.at("seen")) {
      out.seen.push_back({one.at(0).get<int>(), one.at(1).get<int64_t>(), one.at(2).get<int>(),
                          one.at(3).get<double>()});
    }
    for (const auto& one : json.at("ended")) {
      const auto state = std::find(kStates.begin(), kStates.end(), one.at(1).get<std::string>());
      if (state == kStates.end()) return invalid_input("expected a state, found another word");
      out.ended.push_back({one.at(0).get<int>(), static_cast<LiveState>(state - kStates.begin()),
                           one.at(2).get<std::string>()});
    }
  } catch (const nlohmann::json::exception&) {
    return invalid_input("expected what was seen in a round, found another form");
  }
  const auto is_wrong = [&](int job) { return job < 0 || static_cast<size_t>(job) >= jobs; };
  if (std::any_of(out.seen.begin(), out.seen.end(),
                  [&](const auto& one) { return is_wrong(one.job); }) ||
      std::any_of(out.ended.begin(), out.ended.end(),
                  [&](const auto& one) { return is_wrong(one.job); }))
    return invalid_input("expected jobs that were submitted, found another");
  return out;
}

LiveWorkers::LiveWorkers(std::string folder, const Machines& machines)
    : folder_(std::move(folder)), machines_(&machines) {}

std::shared_ptr<const JobModel> LiveWorkers::add(const Submission& submission) {
  Job& job = jobs_.emplace_back(submission, folder_ + "/" + submission.name + ".log");
  job.speeds = std::make_shared<MeasuredSpeeds>(submission);
  job.model = rated_job(job.speeds, static_cast<double>(submission.steps));
  return job.model;
}

std::string LiveWorkers::path_of(const Job& job, const char* ending) const {
  return folder_ + "/" + job.submission.name + ending;
}

Allocation LiveWorkers::Job::wanted() const {
  return state == LiveState::kRunning && !over && !is_cancelled ? allocation : Allocation();
}

void LiveWorkers::look_at(int number, Job& job) {
  const auto ended = job.process->ended();
  job.log.read();
  if (job.told && !job.told->to.empty() && job.log.changes() > job.told->changes_before)
    job.held = std::exchange(job.told, {})->to;
  if (!ended) return;
  job.process.reset();
  job.told.reset();
  job.held = {};
  const bool is_success = ended->signal == 0 && ended->exit_code == 0;
  if (is_success && job.log.has_stopped()) return;
  if (is_success) {
    job.over = {number, LiveState::kDone, ""};
    return;
  }
  const std::string error = error_in(path_of(job, ".log"));
  if (ended->signal == 0 && (ended->exit_code == 1 || ended->exit_code == 2)) {
    job.over = {number, LiveState::kFailed, ended->why.empty() ? error : ended->why};
    return;
  }
  const int64_t step = job.log.step();
  job.losses = step == job.lost_at_step ? job.losses + 1 : 1;
  job.lost_at_step = step;
  if (job.losses < kMostLosses) return;
  const std::string how = !ended->why.empty()  ? ended->why
                          : ended->signal != 0 ? fmt::format("signal {}", ended->signal)
                                               : fmt::format("exit code {}", ended->exit_code);
  job.over = {number, LiveState::kFailed,
              fmt::format("lost {} times at step {} ({}){}{}", job.losses, step, how,
                          error.empty() ? "" : ": ", error)};
}

Result<Observation> LiveWorkers::observe(size_t shown) {
  TESSERA_TRY_VOID(backend_->look());
  Observation out;
  for (size_t i = 0; i < std::min(shown, jobs_.size()); ++i) {
    Job& job = jobs_[i];
    const int number = static_cast<int>(i);
    const bool is_over = job.state != LiveState::kWaiting && job.state != LiveState::kRunning;
    if (is_over) continue;
    if (job.is_cancelled) {
      out.ended.push_back({number, LiveState::kCancelled, ""});
      continue;
    }
    if (job.process != nullptr) look_at(number, job);
    if (static_cast<double>(job.log.step()) != job.run.done && job.log.step() > 0)
      out.seen.push_back({number, job.log.step(), job.held.gpus(), job.log.steps_per_s()});
    if (job.over) out.ended.push_back(*job.over);
  }
  return out;
}

void LiveWorkers::place(int number, const Allocation& allocation, double now_s) {
  Job& job = jobs_[static_cast<size_t>(number)];
  job.shape = machines_->shape(allocation);
  job.allocation = allocation;
  job.state = allocation.empty() ? LiveState::kWaiting : LiveState::kRunning;
  if (allocation.empty()) return;
  if (job.usage.started_s < 0) {
    job.usage.started_s = now_s;
  } else {
    ++job.usage.switches;
  }
  job.usage.last_change_s = now_s;
  job.model->retune(job.run, job.shape, BatchRule::kAsked);
}

std::vector<Ending> LiveWorkers::work_until(double now_s) {
  const Observation told = std::exchange(told_, {});
  for (Job& job : jobs_) {
    if (job.state != LiveState::kRunning) continue;
    job.usage.held_s += now_s - now_s_;
    job.usage.gpu_seconds += (now_s - now_s_) * job.shape.total();
  }
  now_s_ = now_s;
  for (const Observation::Seen& seen : told.seen) {
    Job& job = jobs_[static_cast<size_t>(seen.job)];
    job.run.done = static_cast<double>(seen.step);
    job.run.epoch = static_cast<int64_t>(100 * job.run.done / job.model->total());
    if (seen.steps_per_s > 0 && seen.gpus > 0) job.speeds->measured(seen.gpus, seen.steps_per_s);
  }
  std::vector<Ending> out;
  for (const Observation::Ended& ended : told.ended) {
    Job& job = jobs_[static_cast<size_t>(ended.job)];
    job.state = ended.state;
    job.error = ended.error;
    job.shape = {};
    job.allocation = {};
    job.over.reset();
    out.push_back({ended.job, now_s});
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const Ending& a, const Ending& b) { return a.job < b.job; });
  return out;
}

double LiveWorkers::end_s(int number) const {
  const Job& job = jobs_[static_cast<size_t>(number)];
  if (job.shape.gpus.empty()) return kNever;
  return now_s_ + job.model->seconds_left(job.run, job.shape, BatchRule::kAsked);
}

std::string LiveWorkers::waits_for(int number) const {
  const Job& job = jobs_[static_cast<size_t>(number)];
  return job.process == nullptr ? "" : job.process->waits_for();
}

bool LiveWorkers::fits(const Job& job) const {
  std::map<int, int> used;  // by node, by others
  for (const Job& other : jobs_) {
    if (&other == &job) continue;
    std::map<int, int> own;  // the most of what it has and what it was told to have
    for (const Allocation::Part& part : other.held.parts) own[part.node] = part.gpus;
    if (other.told) {
      for (const Allocation::Part& part : other.told->to.parts)
        own[part.node] = std::max(own[part.node], part.gpus);
    }
    for (const auto& [node, gpus] : own) used[node] += gpus;
  }
  return std::all_of(job.allocation.parts.begin(), job.allocation.parts.end(),
                     [&](const Allocation::Part& part) {
                       const auto node = static_cast<size_t>(part.node);
                       return used[part.node] + part.gpus <= machines_->nodes[node].gpus;
                     });
}

bool LiveWorkers::is_on_lost_node(const Allocation& held) const {
  const std::set<int> out = backend_->nodes_out();
  return std::any_of(held.parts.begin(), held.parts.end(),
                     [&](const Allocation::Part& part) { return out.count(part.node) > 0; });
}

Status LiveWorkers::start(Job& job) {
  const std::string steer = path_of(job, ".steer");
  std::error_code ignored;
  std::filesystem::remove(steer, ignored);
  job.log.begin_process();
  TESSERA_TRY(job.process,
              backend_->start({job.submission, job.allocation, job.allocation.gpus(),
                               path_of(job, ".log"), std::filesystem::absolute(steer).string()}));
  job.held = job.allocation;
  return {};
}

Status LiveWorkers::end(Job& job) {
  TESSERA_TRY_VOID(job.process->end());
  job.process.reset();
  job.told.reset();
  job.held = {};
  return {};
}

Status LiveWorkers::tell(Job& job, const Allocation& to) {
  const nlohmann::json text = to.empty()
                                  ? nlohmann::json{{"stop", true}}
                                  : nlohmann::json{{"plan", job.submission.plan_on(to.gpus())}};
  job.log.read();
  job.told = {to, job.log.step(), job.log.changes()};
  return write_file(path_of(job, ".steer"), dumped(text) + "\n");
}

// Brings a process nearer to what was decided.
Status LiveWorkers::change(Job& job) {
  const bool is_over = job.state != LiveState::kWaiting && job.state != LiveState::kRunning;
  if (is_over || job.is_cancelled) return end(job);
  if (job.told) {
    // A job that does not do what it was told is ended. It may have refused the plan.
    const bool is_late = job.log.step() > job.told->at_step + kMostSteps;
    return is_late || is_on_lost_node(job.held) ? end(job) : Status();
  }
  const Allocation wanted = job.wanted();
  if (job.held == wanted) return {};
  // One that has done no step loses nothing, and one on a node that is lost hears nothing.
  if (!job.log.has_begun() || is_on_lost_node(job.held)) return end(job);
  if (wanted.empty() || !job.process->can_go_on_with(wanted)) return tell(job, {});
  if (!fits(job)) return {};
  if (wanted.gpus() != job.held.gpus()) return tell(job, wanted);
  job.held = wanted;
  return {};
}

Status LiveWorkers::carry_out() {
  for (Job& job : jobs_) {
    if (job.process != nullptr) TESSERA_TRY_VOID(change(job));
  }
  for (Job& job : jobs_) {
    if (job.must_start() && fits(job)) TESSERA_TRY_VOID(start(job));
  }
  return backend_->end_others();
}

bool LiveWorkers::is_settling() const {
  return std::any_of(jobs_.begin(), jobs_.end(), [](const Job& job) {
    return job.must_start() || job.told || (job.process != nullptr && job.held != job.wanted());
  });
}

Status LiveWorkers::settle() {
  TESSERA_TRY_VOID(backend_->look());
  for (size_t i = 0; i < jobs_.size(); ++i) {
    if (jobs_[i].process != nullptr) look_at(static_cast<int>(i), jobs_[i]);
  }
  return carry_out();
}

}  // namespace tessera::share
