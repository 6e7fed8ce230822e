#include "tessera/orchestrate/share/controller.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "tessera/base/check.h"
#include "tessera/orchestrate/share/waits.h"

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
        waits_(jobs, machines) {
    out_.jobs.resize(jobs.size());
    view_.machines = &machines;
    view_.round_s = options.round_s;
    view_.switch_s = options.switching.seconds;
    view_.links = options.switching.links;
  }

  double next_s() const { return next_round(now_s_); }

  void round(double at_s) {
    out_.jobs.resize(jobs_.size());
    waits_.pass(at_s - now_s_);
    const std::vector<Ending> ended = workers_.work_until(at_s);
    now_s_ = out_.end_s = at_s;
    for (const Ending& ending : ended) end(ending);
    if (!ended.empty()) {
      std::erase_if(view_.jobs, [&](const JobView& job) { return is_done(job.id); });
    }
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
      waits_.set(job, true);
    }
    is_stale_ = true;
    occupancy_.close(node);
  }
  void fill_node(int node, int gpus) { occupancy_.open(node, gpus); }

  size_t done() const { return done_; }
  size_t idle() const { return idle_; }  // rounds since the last in which a job ended
  const Allocation& allocation(int job) const { return occupancy_.of(job); }
  WaitReason reason(int job) const { return waits_.now(job); }
  Outcome& outcome() { return out_; }

  Result<Outcome> never_ends() const {
    std::string waiting = active_.empty() ? "" : jobs_[static_cast<size_t>(active_.front())].name;
    return check_failed(fmt::format(
        "the policy leaves jobs that never end: {} of {} are done at {:.0f} s, job '{}' is not",
        done_, jobs_.size(), now_s_, waiting));
  }

 private:
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
    job.waits_for = waits_.longest(ending.job);
    job.waited_s = waits_.seconds(ending.job);
    waits_.set(ending.job, false);
  }

  bool is_done(int job) const { return out_.jobs[static_cast<size_t>(job)].end_s >= 0; }

  JobView view_of(int job) const {
    const Usage& usage = workers_.usage(job);
    return {.id = job,
            .spec = &jobs_[static_cast<size_t>(job)],
            .run = &workers_.run(job),
            .allocation = occupancy_.of(job),
            .held_s = usage.held_s,
            .gpu_seconds = usage.gpu_seconds,
            .switches = usage.switches,
            .started_s = usage.started_s,
            .last_change_s = usage.last_change_s};
  }

  // Brings the view up to date. The view of a job changes only while it has GPUs, so of the many that
  // may wait none is looked up. Where the list of jobs has grown, addresses have changed, too.
  void refresh() {
    view_.now_s = now_s_;
    view_.arrived = seen_;
    if (is_stale_ || shown_ != jobs_.size()) view_.jobs.clear();
    is_stale_ = false;
    shown_ = jobs_.size();
    for (JobView& job : view_.jobs) {
      if (!job.allocation.empty()) job = view_of(job.id);
    }
    first_new_ = view_.jobs.size();
    for (size_t i = first_new_; i < active_.size(); ++i) view_.jobs.push_back(view_of(active_[i]));
  }

  void decide() {
    refresh();
    const View& seen = view_;
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
    apply(decision);
    give_reasons();
  }

  // Takes all GPUs back that change hands, and then gives them. GPUs on which a job cannot run are not
  // given to it.
  void apply(Decision& decision) {
    std::vector<size_t> changed;
    for (size_t i = 0; i < view_.jobs.size(); ++i) {
      const JobView& job = view_.jobs[i];
      if (decision.allocations[i] != job.allocation) {
        const Shape shape = machines_.shape(decision.allocations[i]);
        if (!shape.gpus.empty() && !job.model().runs_on(shape)) decision.allocations[i] = {};
      }
      if (decision.allocations[i] == job.allocation) {
        if (i >= first_new_ && job.allocation.empty()) waits_.set(job.id, true);
        continue;
      }
      changed.push_back(i);
      occupancy_.take_back(job.id);
    }
    for (const size_t i : changed) {
      const int job = view_.jobs[i].id;
      occupancy_.give(job, decision.allocations[i]);
      workers_.place(job, decision.allocations[i], now_s_);
      waits_.set(job, decision.allocations[i].empty());
      out_.changes.push_back({now_s_, job, std::move(decision.allocations[i])});
      view_.jobs[i] = view_of(job);
    }
    is_changed_ = !changed.empty();
  }

  void give_reasons() {
    const WaitFacts facts{occupancy_.free_gpus(), occupancy_.nodes_with_free(), {}};
    waits_.judge(
        facts, [this] { return releases(); }, now_s_);
    const int waiting = static_cast<int>(waits_.waiting());
    const int running = static_cast<int>(active_.size()) - waiting;
    if (is_changed_ || waiting > 0)
      out_.queue.push_back({now_s_, waiting, running, machines_.gpus() - facts.free_gpus});
  }

  std::vector<WaitFacts::Release> releases() const {
    std::vector<WaitFacts::Release> out;
    for (const JobView& job : view_.jobs) {
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
  Waits waits_;
  std::vector<int> active_;  // submitted and not done
  View view_;                // of the active jobs
  size_t shown_ = 0;         // jobs that there were when the view was made
  size_t first_new_ = 0;     // place in the view of the first job that it did not have before
  Outcome out_;
  size_t seen_ = 0, done_ = 0, idle_ = 0;
  double now_s_ = 0, wakes_s_ = kNever;
  bool is_changed_ = false, is_stale_ = false;
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
  SimulatedWorkers workers(jobs, machines, policy.batch_rule(), options.switching,
                           policy.changes_live());
  // The policy sees what is believed; the workers advance by what is true.
  std::vector<JobSpec> shown = jobs;
  for (JobSpec& job : shown) {
    if (job.believed) std::swap(job.model, job.believed);
  }
  return run_jobs(shown, machines, policy, clock, workers, options);
}

}  // namespace tessera::share
