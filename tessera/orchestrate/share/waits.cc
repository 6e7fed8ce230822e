#include "tessera/orchestrate/share/waits.h"

#include <algorithm>

namespace tessera::share {

const Waits::Wait* Waits::find(int job) const {
  return static_cast<size_t>(job) < waits_.size() ? &waits_[static_cast<size_t>(job)] : nullptr;
}

void Waits::set(int job, bool is_waiting) {
  if (waits_.size() < jobs_.size()) waits_.resize(jobs_.size());
  Wait& wait = waits_[static_cast<size_t>(job)];
  if (wait.is_waiting == is_waiting) return;
  wait.is_waiting = is_waiting;
  Queue& queue = queues_[jobs_[static_cast<size_t>(job)].gpus];
  const auto at = std::lower_bound(waiting_.begin(), waiting_.end(), job);
  if (!is_waiting) {
    for (size_t kind = 0; kind < kKinds; ++kind)
      wait.before[kind] += queue.total[kind] - wait.since[kind];
    wait.last = queue.now;
    --queue.waiting;
    waiting_.erase(at);
    return;
  }
  wait.since = queue.total;
  ++queue.waiting;
  waiting_.insert(at, job);
  for (size_t kind = 0; kind < kKinds; ++kind) {
    if (wait.is_listed[kind] || wait.first[kind].kind != WaitKind::kNone) continue;
    wait.is_listed[kind] = true;
    queue.without[kind].push_back(job);
  }
}

void Waits::pass(double seconds) {
  for (auto& [gpus, queue] : queues_) {
    if (queue.waiting > 0) queue.total[static_cast<size_t>(queue.now)] += seconds;
  }
}

void Waits::judge(WaitFacts facts, const Releases& releases, double now_s) {
  bool has_releases = false;
  for (auto& [gpus, queue] : queues_) {
    if (queue.waiting == 0) continue;
    queue.now = wait_kind(gpus, machines_, facts);
    const auto kind = static_cast<size_t>(queue.now);
    for (const int job : queue.without[kind]) {
      Wait& wait = waits_[static_cast<size_t>(job)];
      wait.is_listed[kind] = false;  // one that does not wait now is listed when it waits again
      if (!wait.is_waiting) continue;
      if (!has_releases) facts.releases = releases();
      has_releases = true;
      const auto ahead = std::lower_bound(waiting_.begin(), waiting_.end(), job) - waiting_.begin();
      wait.first[kind] = wait_reason(jobs_[static_cast<size_t>(job)], jobs_, machines_, facts,
                                     static_cast<int>(ahead), now_s);
    }
    queue.without[kind].clear();
  }
}

WaitReason Waits::now(int job) const {
  const Wait* wait = find(job);
  if (wait == nullptr) return {};
  const auto queue = queues_.find(jobs_[static_cast<size_t>(job)].gpus);
  const WaitKind kind = wait->is_waiting ? queue->second.now : wait->last;
  return wait->first[static_cast<size_t>(kind)];
}

Waits::Seconds Waits::seconds_of(int job) const {
  const Wait* wait = find(job);
  if (wait == nullptr) return {};
  Seconds out = wait->before;
  if (!wait->is_waiting) return out;
  const Queue& queue = queues_.at(jobs_[static_cast<size_t>(job)].gpus);
  for (size_t kind = 0; kind < kKinds; ++kind) out[kind] += queue.total[kind] - wait->since[kind];
  return out;
}

WaitReason Waits::longest(int job) const {
  const Seconds seconds = seconds_of(job);
  const auto most = std::max_element(seconds.begin(), seconds.end());
  const Wait* wait = find(job);
  if (wait == nullptr || *most <= 0) return {};
  return wait->first[static_cast<size_t>(most - seconds.begin())];
}

double Waits::seconds(int job) const {
  double out = 0;
  for (const double seconds : seconds_of(job)) out += seconds;
  return out;
}

}  // namespace tessera::share
