#include "tessera/orchestrate/share/controller.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>

#include "tessera/base/check.h"

namespace tessera::share {
namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

class Rounds::Loop {
 public:
  Loop(const std::vector<JobSpec>& jobs, const Machines& machines, Policy& policy, Workers& workers,
       const ControllerOptions& options)
      : jobs_(jobs),
        machines_(machines),
        policy_(policy),
        workers_(workers),
        options_(options),
        admission_(jobs),
        occupancy_(machines),
        waits_(jobs.size()) {
    out_.jobs.resize(jobs.size());
  }

  double next_s() const { return next_round(now_s_); }

  void round(double at_s) {
    out_.jobs.resize(jobs_.size());
    waits_.resize(jobs_.size());
    count_waiting(at_s - now_s_);
    const std::vector<Ending> ended = workers_.work_until(at_s);
    now_s_ = out_.end_s = at_s;
    for (const Ending& ending : ended) end(ending);
    done_ += ended.size();
    idle_ = ended.empty() ? idle_ + 1 : 0;
    const size_t seen = admission_.submitted_by(now_s_);
    const bool is_new = seen > seen_;
    for (; seen_ < seen; ++seen_) active_.push_back(static_cast<int>(seen_));
    if (active_.empty()) {
      wakes_s_ = kNever;
      return;
    }
    decide();
    if (options_.progress && (is_new || !ended.empty())) options_.progress(now_s_, done_);
  }

  void empty_node(int node) {
    for (const int job : active_) {
      const std::vector<Allocation::Part>& parts = occupancy_.of(job).parts;
      if (std::none_of(parts.begin(), parts.end(),
                       [&](const Allocation::Part& part) { return part.node == node; }))
        continue;
      occupancy_.take_back(job);
      workers_.place(job, {}, now_s_);
      out_.changes.push_back({now_s_, job, {}});
    }
    occupancy_.close(node);
  }
  void fill_node(int node, int gpus) { occupancy_.open(node, gpus); }

  size_t done() const { return done_; }
  size_t idle() const { return idle_; }  // rounds since the last in which a job ended
  const Allocation& allocation(int job) const { return occupancy_.of(job); }
  WaitReason reason(int job) const {
    const Wait& wait = waits_[static_cast<size_t>(job)];
    return wait.first[static_cast<size_t>(wait.now)];
  }
  Outcome& outcome() { return out_; }

  Result<Outcome> never_ends() const {
    std::string waiting = active_.empty() ? "" : jobs_[static_cast<size_t>(active_.front())].name;
    return check_failed(fmt::format(
        "the policy leaves jobs that never end: {} of {} are done at {:.0f} s, job '{}' is not",
        done_, jobs_.size(), now_s_, waiting));
  }

 private:
  struct Wait {
    std::array<double, 4> seconds{};  // by kind
    std::array<WaitReason, 4> first;  // by kind: the first that was found
    WaitKind now = WaitKind::kNone;
  };

  // Returns the end of the next round in which something can change.
  double next_round(double last_s) const {
    const double round = options_.round_s;
    if (wakes_s_ <= last_s + round) return last_s + round;
    const double event = std::min({admission_.next_s(seen_), workers_.next_end_s(), wakes_s_});
    if (event == kNever) return kNever;
    return std::max(last_s + round, std::ceil(event / round - 1e-9) * round);
  }

  void end(const Ending& ending) {
    JobOutcome& job = out_.jobs[static_cast<size_t>(ending.job)];
    job.end_s = ending.at_s;
    job.usage = workers_.usage(ending.job);
    job.start_s = job.usage.started_s;
    occupancy_.take_back(ending.job);
    out_.changes.push_back({ending.at_s, ending.job, {}});
    std::erase(active_, ending.job);
    const Wait& wait = waits_[static_cast<size_t>(ending.job)];
    const auto most = std::max_element(wait.seconds.begin(), wait.seconds.end());
    if (*most > 0) job.waits_for = wait.first[static_cast<size_t>(most - wait.seconds.begin())];
    for (const double seconds : wait.seconds) job.waited_s += seconds;
  }

  void count_waiting(double seconds) {
    for (const int job : active_) {
      if (!occupancy_.of(job).empty()) continue;
      Wait& wait = waits_[static_cast<size_t>(job)];
      wait.seconds[static_cast<size_t>(wait.now)] += seconds;
    }
  }

  View view() const {
    View out{.now_s = now_s_,
             .round_s = options_.round_s,
             .switch_s = options_.switching.seconds,
             .machines = &machines_,
             .jobs = {},
             .arrived = seen_};
    out.jobs.reserve(active_.size());
    for (const int job : active_) {
      const Usage& usage = workers_.usage(job);
      out.jobs.push_back({.id = job,
                          .spec = &jobs_[static_cast<size_t>(job)],
                          .run = &workers_.run(job),
                          .allocation = occupancy_.of(job),
                          .held_s = usage.held_s,
                          .gpu_seconds = usage.gpu_seconds,
                          .switches = usage.switches,
                          .started_s = usage.started_s,
                          .last_change_s = usage.last_change_s});
    }
    return out;
  }

  void decide() {
    const View seen = view();
    const auto start = std::chrono::steady_clock::now();
    Decision decision = policy_.decide(seen);
    const double took = seconds_since(start);
    ++out_.decisions;
    out_.all_decisions_s += took;
    out_.longest_decision_s = std::max(out_.longest_decision_s, took);
    TESSERA_CHECK(decision.allocations.size() == seen.jobs.size(),
                  "the policy answers for {} jobs, it was asked for {}",
                  decision.allocations.size(), seen.jobs.size());
    const double after = policy_.wakes_after(seen);
    wakes_s_ = after == kNever ? kNever : now_s_ + after;
    apply(seen, decision);
    give_reasons(seen);
  }

  // Takes all GPUs back that change hands, and then gives them.
  void apply(const View& seen, Decision& decision) {
    std::vector<size_t> changed;
    for (size_t i = 0; i < seen.jobs.size(); ++i) {
      if (decision.allocations[i] == seen.jobs[i].allocation) continue;
      changed.push_back(i);
      occupancy_.take_back(seen.jobs[i].id);
    }
    for (const size_t i : changed) {
      const int job = seen.jobs[i].id;
      occupancy_.give(job, decision.allocations[i]);
      workers_.place(job, decision.allocations[i], now_s_);
      out_.changes.push_back({now_s_, job, std::move(decision.allocations[i])});
    }
    is_changed_ = !changed.empty();
  }

  void give_reasons(const View& seen) {
    WaitFacts facts{occupancy_.free_gpus(), occupancy_.nodes_with_free(), {}};
    QueuePoint point{now_s_, 0, 0, machines_.gpus() - facts.free_gpus};
    bool is_sorted = false;
    for (const JobView& job : seen.jobs) {
      if (!occupancy_.of(job.id).empty()) {
        ++point.running;
        continue;
      }
      Wait& wait = waits_[static_cast<size_t>(job.id)];
      wait.now = wait_kind(*job.spec, machines_, facts);
      WaitReason& first = wait.first[static_cast<size_t>(wait.now)];
      if (first.kind == WaitKind::kNone) {
        if (!is_sorted) facts.releases = releases(seen);
        is_sorted = true;
        first = wait_reason(*job.spec, jobs_, machines_, facts, point.waiting, now_s_);
      }
      ++point.waiting;
    }
    if (is_changed_ || point.waiting > 0) out_.queue.push_back(point);
  }

  std::vector<WaitFacts::Release> releases(const View& seen) const {
    std::vector<WaitFacts::Release> out;
    for (const JobView& job : seen.jobs) {
      const int gpus = occupancy_.of(job.id).gpus();
      if (gpus > 0) out.push_back({workers_.end_s(job.id), gpus, job.id});
    }
    std::stable_sort(out.begin(), out.end(),
                     [](const auto& a, const auto& b) { return a.at_s < b.at_s; });
    return out;
  }

  const std::vector<JobSpec>& jobs_;
  const Machines& machines_;
  Policy& policy_;
  Workers& workers_;
  ControllerOptions options_;
  Admission admission_;
  Occupancy occupancy_;
  std::vector<Wait> waits_;
  std::vector<int> active_;  // submitted and not done
  Outcome out_;
  size_t seen_ = 0, done_ = 0, idle_ = 0;
  double now_s_ = 0, wakes_s_ = kNever;
  bool is_changed_ = false;
};

Rounds::Rounds(const std::vector<JobSpec>& jobs, const Machines& machines, Policy& policy,
               Workers& workers, const ControllerOptions& options)
    : loop_(std::make_unique<Loop>(jobs, machines, policy, workers, options)) {}
Rounds::~Rounds() = default;
double Rounds::next_s() const { return loop_->next_s(); }
void Rounds::round(double at_s) { loop_->round(at_s); }
void Rounds::empty_node(int node) { loop_->empty_node(node); }
void Rounds::fill_node(int node, int gpus) { loop_->fill_node(node, gpus); }
size_t Rounds::done() const { return loop_->done(); }
const Allocation& Rounds::allocation(int job) const { return loop_->allocation(job); }
WaitReason Rounds::reason(int job) const { return loop_->reason(job); }
Outcome& Rounds::outcome() { return loop_->outcome(); }

Result<Outcome> run_jobs(const std::vector<JobSpec>& jobs, const Machines& machines, Policy& policy,
                         Clock& clock, Workers& workers, const ControllerOptions& options) {
  Rounds::Loop loop(jobs, machines, policy, workers, options);
  while (loop.done() < jobs.size()) {
    const double next_s = loop.next_s();
    if (next_s > options.most_s || loop.idle() > options.most_idle) return loop.never_ends();
    clock.wait_until(next_s);
    loop.round(next_s);
  }
  return std::move(loop.outcome());
}

Result<Outcome> simulate_jobs(const std::vector<JobSpec>& jobs, const Machines& machines,
                              Policy& policy, const ControllerOptions& options) {
  SimulatedClock clock;
  SwitchCost switching = options.switching;
  if (!policy.changes_live()) switching.live_seconds = -1;
  SimulatedWorkers workers(jobs, machines, policy.batch_rule(), switching);
  return run_jobs(jobs, machines, policy, clock, workers, options);
}

}  // namespace tessera::share
