#include "tessera/orchestrate/share/workers.h"

#include <algorithm>
#include <utility>

namespace tessera::share {

SimulatedWorkers::SimulatedWorkers(const std::vector<JobSpec>& jobs, const Machines& machines,
                                   BatchRule rule, SwitchCost cost, bool is_live)
    : jobs_(&jobs),
      machines_(&machines),
      rule_(rule),
      cost_(cost),
      is_live_(is_live),
      states_(jobs.size()) {}

void SimulatedWorkers::place(int job, const Allocation& allocation, double now_s) {
  State& state = states_[static_cast<size_t>(job)];
  const JobSpec& spec = (*jobs_)[static_cast<size_t>(job)];
  state.shape = machines_->shape(allocation);
  state.end_s = -1;
  const Allocation before = std::exchange(state.held, allocation);
  const auto at = std::lower_bound(running_.begin(), running_.end(), job);
  const bool was_running = at != running_.end() && *at == job;
  if (allocation.empty()) {
    if (was_running) running_.erase(at);
    return;
  }
  if (!was_running) running_.insert(at, job);
  const StateBytes had = std::exchange(state.state, spec.state_bytes(state.shape, rule_));
  const Pause pause = cost_.of({.nodes = nodes_of_change(before, allocation),
                                .before = had,
                                .after = state.state,
                                .has_state = state.usage.started_s >= 0,
                                .was_running = was_running,
                                .is_live = is_live_});
  state.pause_s = pause.seconds;
  state.usage.moved_bytes += pause.moved_bytes;
  if (state.usage.started_s < 0) {
    state.usage.started_s = now_s;
  } else {
    ++state.usage.switches;
  }
  state.usage.last_change_s = now_s;
  spec.model->retune(state.run, state.shape, rule_);
}

double SimulatedWorkers::work(int job, double seconds) {
  State& state = states_[static_cast<size_t>(job)];
  const double gpus = state.shape.total();
  const double pause = std::min(seconds, state.pause_s);
  state.pause_s -= pause;
  const Advance step = seconds > pause ? (*jobs_)[static_cast<size_t>(job)].model->advance(
                                             state.run, state.shape, seconds - pause)
                                       : Advance{};
  const double used = step.is_done ? pause + step.seconds : seconds;
  state.usage.held_s += used;
  state.usage.gpu_seconds += used * gpus;
  state.usage.switching_gpu_seconds += pause * gpus;
  return step.is_done ? used : kNever;
}

std::vector<Ending> SimulatedWorkers::work_until(double now_s) {
  std::vector<Ending> out;
  std::erase_if(running_, [&](int job) {
    const double used = work(job, now_s - now_s_);
    if (used < kNever) out.push_back({job, now_s_ + used});
    return used < kNever;
  });
  now_s_ = now_s;
  return out;
}

double SimulatedWorkers::end_s(int job) const {
  const State& state = states_[static_cast<size_t>(job)];
  if (state.shape.gpus.empty()) return kNever;
  if (state.end_s < 0) {
    state.end_s =
        now_s_ + state.pause_s +
        (*jobs_)[static_cast<size_t>(job)].model->seconds_left(state.run, state.shape, rule_);
  }
  return state.end_s;
}

double SimulatedWorkers::next_end_s() const {
  double out = kNever;
  for (const int job : running_) out = std::min(out, end_s(job));
  return out;
}

}  // namespace tessera::share
