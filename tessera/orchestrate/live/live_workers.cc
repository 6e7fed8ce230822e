#include "tessera/orchestrate/live/live_workers.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <utility>

#include "tessera/base/json_text.h"
#include "tessera/base/one_line.h"

namespace tessera::share {
namespace {

constexpr int kMostLosses = 3;  // without a step between them
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
  Job job;
  job.submission = submission;
  job.speeds = std::make_shared<MeasuredSpeeds>(submission.least_gpus, submission.most_gpus);
  job.model = rated_job(job.speeds, static_cast<double>(submission.steps));
  jobs_.push_back(std::move(job));
  return jobs_.back().model;
}

std::string LiveWorkers::log_of(const Job& job) const {
  return folder_ + "/" + job.submission.name + ".log";
}

void LiveWorkers::look_at(int number, Job& job, Observation& out) {
  const RunProgress progress = progress_in(log_of(job));
  if (static_cast<double>(progress.step) != job.run.done && progress.step > 0)
    out.seen.push_back({number, progress.step, job.process_gpus, progress.steps_per_s});
  const auto end = job.process->ended();
  if (!end) return;
  job.process.reset();
  if (end->signal == 0 && end->exit_code == 0)
    return out.ended.push_back({number, LiveState::kDone, ""});
  const std::string error = error_in(log_of(job));
  if (end->signal == 0 && (end->exit_code == 1 || end->exit_code == 2))
    return out.ended.push_back({number, LiveState::kFailed, end->why.empty() ? error : end->why});
  job.losses = progress.step == job.lost_at_step ? job.losses + 1 : 1;
  job.lost_at_step = progress.step;
  if (job.losses < kMostLosses) {
    job.must_start = true;
    return;
  }
  const std::string how = !end->why.empty()  ? end->why
                          : end->signal != 0 ? fmt::format("signal {}", end->signal)
                                             : fmt::format("exit code {}", end->exit_code);
  out.ended.push_back({number, LiveState::kFailed,
                       fmt::format("lost {} times at step {} ({}){}{}", job.losses, progress.step,
                                   how, error.empty() ? "" : ": ", error)});
}

Result<Observation> LiveWorkers::observe(size_t shown) {
  TESSERA_TRY_VOID(backend_->look());
  Observation out;
  for (size_t i = 0; i < std::min(shown, jobs_.size()); ++i) {
    Job& job = jobs_[i];
    const bool is_over = job.state != LiveState::kWaiting && job.state != LiveState::kRunning;
    if (is_over) continue;
    if (job.is_cancelled) {
      out.ended.push_back({static_cast<int>(i), LiveState::kCancelled, ""});
    } else if (job.process != nullptr) {
      look_at(static_cast<int>(i), job, out);
    }
  }
  return out;
}

void LiveWorkers::place(int number, const Allocation& allocation, double now_s) {
  Job& job = jobs_[static_cast<size_t>(number)];
  job.shape = machines_->shape(allocation);
  job.allocation = allocation;
  job.must_start = !allocation.empty();
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
    if (seen.steps_per_s > 0) job.speeds->measured(seen.gpus, seen.steps_per_s);
  }
  std::vector<Ending> out;
  for (const Observation::Ended& ended : told.ended) {
    Job& job = jobs_[static_cast<size_t>(ended.job)];
    job.state = ended.state;
    job.error = ended.error;
    job.shape = {};
    job.must_start = false;
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

Status LiveWorkers::carry_out() {
  // All that must end ends before anything starts, because GPUs change hands.
  for (Job& job : jobs_) {
    if (job.process == nullptr || (!job.must_start && !job.shape.gpus.empty())) continue;
    TESSERA_TRY_VOID(job.process->end());
    job.process.reset();
  }
  for (Job& job : jobs_) {
    if (!std::exchange(job.must_start, false)) continue;
    job.process_gpus = job.shape.total();
    TESSERA_TRY(job.process,
                backend_->start({job.submission, job.allocation, job.process_gpus, log_of(job)}));
  }
  return backend_->end_others();
}

}  // namespace tessera::share
