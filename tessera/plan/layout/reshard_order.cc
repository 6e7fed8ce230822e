#include "tessera/plan/layout/reshard_order.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

namespace tessera::reshard_order {
namespace {

// Relative; sums of the same terms in another order differ by less.
constexpr double kSlack = 1e-12;

size_t out_card(int host) { return 2 * static_cast<size_t>(host); }
size_t in_card(int host) { return 2 * static_cast<size_t>(host) + 1; }

template <class Visit>
void for_each_card(const Job& job, int sender, const Visit& visit) {
  visit(out_card(sender));
  for (int host : job.receivers) visit(in_card(host));
  for (int host : job.relays) visit(out_card(host));
}

// Adds the job after all earlier jobs on its cards, and returns its start. `clocks`: by card, the
// time at which its last job ends.
double place_sender(const Job& job, int sender, std::vector<double>& clocks) {
  double start = 0;
  for_each_card(job, sender, [&](size_t card) { start = std::max(start, clocks[card]); });
  for_each_card(job, sender, [&](size_t card) { clocks[card] = start + job.seconds; });
  return start;
}

// A `Random` is splitmix64: it gives the same numbers on every platform.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15ULL);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }
  size_t below(size_t n) { return static_cast<size_t>(next() % n); }
  double unit() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }

 private:
  uint64_t state_;
};

Schedule balanced_in_order(const std::vector<Job>& jobs, const std::vector<int>& order, int hosts) {
  std::vector<double> load(static_cast<size_t>(hosts), 0);
  Schedule out;
  for (int j : order) {
    const Job& job = jobs[static_cast<size_t>(j)];
    const auto less = [&](int a, int b) {
      return load[static_cast<size_t>(a)] < load[static_cast<size_t>(b)];
    };
    const int sender = *std::min_element(job.senders.begin(), job.senders.end(), less);
    load[static_cast<size_t>(sender)] += job.seconds;
    out.push_back({j, sender});
  }
  return out;
}

std::vector<int> in_order(size_t n) {
  std::vector<int> order(n);
  std::iota(order.begin(), order.end(), 0);
  return order;
}

struct Wave {
  Schedule slots;
  std::vector<double> load;  // by host: seconds of the jobs that it sends, after this wave
  double deviation = 0;
};

Wave random_wave(const std::vector<Job>& jobs, std::vector<int> remaining,
                 const std::vector<double>& load, Random& random) {
  for (size_t i = remaining.size(); i > 1; --i)
    std::swap(remaining[i - 1], remaining[random.below(i)]);
  Wave wave{{}, load, 0};
  std::vector<bool> taken(2 * load.size(), false);
  const double most = *std::max_element(load.begin(), load.end());
  for (int j : remaining) {
    const Job& job = jobs[static_cast<size_t>(j)];
    const auto busy_in = [&](int h) { return static_cast<bool>(taken[in_card(h)]); };
    const auto busy_out = [&](int h) { return static_cast<bool>(taken[out_card(h)]); };
    if (std::any_of(job.receivers.begin(), job.receivers.end(), busy_in) ||
        std::any_of(job.relays.begin(), job.relays.end(), busy_out)) {
      continue;
    }
    double total = 0;
    const auto weight = [&](int h) {
      return busy_out(h) ? 0.0 : most - load[static_cast<size_t>(h)] + job.seconds;
    };
    for (int h : job.senders) total += weight(h);
    if (total <= 0) continue;
    double at = random.unit() * total;
    int sender = -1;
    for (int h : job.senders) {
      if (weight(h) <= 0) continue;
      sender = h;
      at -= weight(h);
      if (at < 0) break;
    }
    for_each_card(job, sender, [&](size_t card) { taken[card] = true; });
    wave.load[static_cast<size_t>(sender)] += job.seconds;
    wave.slots.push_back({j, sender});
  }
  const double mean = std::accumulate(wave.load.begin(), wave.load.end(), 0.0) /
                      static_cast<double>(wave.load.size());
  for (double l : wave.load) wave.deviation += (l - mean) * (l - mean);
  return wave;
}

// A `Search` finds the shortest schedule by depth-first search over the next job and its sender.
class Search {
 public:
  Search(const std::vector<Job>& jobs, Schedule incumbent, int hosts, double bound)
      : jobs_(jobs), hosts_(hosts), bound_(bound), best_(std::move(incumbent)) {
    shortest_ = makespan(jobs_, best_, hosts_);
  }
  Schedule run() {
    std::vector<double> clocks(2 * static_cast<size_t>(hosts_), 0);
    descend(0, clocks, 0);
    return best_;
  }

 private:
  bool done(uint32_t used, size_t j) const { return ((used >> j) & 1U) != 0; }

  double lower_bound(uint32_t used, const std::vector<double>& clocks, double so_far) const {
    std::vector<double> in(static_cast<size_t>(hosts_), 0), forced = in;
    std::vector<bool> may_send(static_cast<size_t>(hosts_), false);
    double remaining = 0;
    for (size_t j = 0; j < jobs_.size(); ++j) {
      if (done(used, j)) continue;
      const Job& job = jobs_[j];
      remaining += job.seconds;
      for (int h : job.receivers) in[static_cast<size_t>(h)] += job.seconds;
      if (job.senders.size() == 1) forced[static_cast<size_t>(job.senders[0])] += job.seconds;
      for (int h : job.senders) may_send[static_cast<size_t>(h)] = true;
    }
    double bound = so_far, clock_sum = 0;
    int senders = 0;
    for (int h = 0; h < hosts_; ++h) {
      const size_t i = static_cast<size_t>(h);
      if (in[i] > 0) bound = std::max(bound, clocks[in_card(h)] + in[i]);
      if (forced[i] > 0) bound = std::max(bound, clocks[out_card(h)] + forced[i]);
      if (!may_send[i]) continue;
      clock_sum += clocks[out_card(h)];
      ++senders;
    }
    if (senders > 0) bound = std::max(bound, (clock_sum + remaining) / senders);
    return bound;
  }

  void descend(uint32_t used, const std::vector<double>& clocks, double so_far) {
    if (shortest_ <= bound_ * (1 + kSlack)) return;
    if (path_.size() == jobs_.size()) {
      if (so_far < shortest_ * (1 - kSlack)) {
        shortest_ = so_far;
        best_ = path_;
      }
      return;
    }
    if (lower_bound(used, clocks, so_far) >= shortest_ * (1 - kSlack)) return;
    if (!seen_.emplace(used, clocks).second) return;
    for (size_t j = 0; j < jobs_.size(); ++j) {
      if (done(used, j)) continue;
      for (int sender : jobs_[j].senders) {
        std::vector<double> next = clocks;
        const double end = place_sender(jobs_[j], sender, next) + jobs_[j].seconds;
        path_.push_back({static_cast<int>(j), sender});
        descend(used | (1U << j), next, std::max(so_far, end));
        path_.pop_back();
      }
    }
  }

  const std::vector<Job>& jobs_;
  int hosts_;
  double bound_;
  Schedule best_;
  double shortest_ = 0;
  Schedule path_;
  // States (jobs done, clocks) that were searched already.
  std::set<std::pair<uint32_t, std::vector<double>>> seen_;
};

}  // namespace

double makespan(const std::vector<Job>& jobs, const Schedule& schedule, int hosts,
                std::vector<double>* starts) {
  std::vector<double> clocks(2 * static_cast<size_t>(hosts), 0);
  double end = 0;
  for (const Slot& slot : schedule) {
    const Job& job = jobs[static_cast<size_t>(slot.job)];
    const double start = place_sender(job, slot.sender, clocks);
    if (starts != nullptr) starts->push_back(start);
    end = std::max(end, start + job.seconds);
  }
  return end;
}

Schedule first_replica(const std::vector<Job>& jobs) {
  Schedule out;
  for (size_t j = 0; j < jobs.size(); ++j) out.push_back({static_cast<int>(j), jobs[j].senders[0]});
  return out;
}

Schedule size_balanced(const std::vector<Job>& jobs, int hosts) {
  return balanced_in_order(jobs, in_order(jobs.size()), hosts);
}

Schedule longest_first(const std::vector<Job>& jobs, int hosts) {
  std::vector<int> order = in_order(jobs.size());
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return jobs[static_cast<size_t>(a)].seconds > jobs[static_cast<size_t>(b)].seconds;
  });
  return balanced_in_order(jobs, order, hosts);
}

Schedule waves(const std::vector<Job>& jobs, int hosts, uint64_t seed) {
  constexpr int kTries = 100;
  Random random(seed);
  std::vector<int> remaining = in_order(jobs.size());
  std::vector<double> load(static_cast<size_t>(hosts), 0);
  Schedule out;
  while (!remaining.empty()) {
    Wave best;
    for (int i = 0; i < kTries; ++i) {
      Wave wave = random_wave(jobs, remaining, load, random);
      const bool more = wave.slots.size() > best.slots.size();
      const bool level = wave.slots.size() == best.slots.size() && wave.deviation < best.deviation;
      if (more || level) best = std::move(wave);
    }
    for (const Slot& slot : best.slots) {
      out.push_back(slot);
      std::erase(remaining, slot.job);
    }
    load = best.load;
  }
  return out;
}

Schedule improve(const std::vector<Job>& jobs, Schedule schedule, int hosts, double bound) {
  constexpr int64_t kWork = 400'000;  // placements
  const int64_t n = static_cast<int64_t>(jobs.size());
  int64_t budget = n > 0 ? kWork / n : 0;
  double best = makespan(jobs, schedule, hosts);
  const auto better = [&] {
    --budget;
    const double now = makespan(jobs, schedule, hosts);
    if (now >= best * (1 - kSlack)) return false;
    best = now;
    return true;
  };
  bool moved = true;
  while (moved && budget > 0 && best > bound * (1 + kSlack)) {
    moved = false;
    for (size_t i = 0; i < schedule.size() && budget > 0; ++i) {
      for (int sender : jobs[static_cast<size_t>(schedule[i].job)].senders) {
        const int old = schedule[i].sender;
        if (sender == old) continue;
        schedule[i].sender = sender;
        if (better()) {
          moved = true;
        } else {
          schedule[i].sender = old;
        }
      }
      for (size_t k = i + 1; k < schedule.size() && budget > 0; ++k) {
        std::swap(schedule[i], schedule[k]);
        if (better()) {
          moved = true;
        } else {
          std::swap(schedule[i], schedule[k]);
        }
      }
    }
  }
  return schedule;
}

Schedule exact(const std::vector<Job>& jobs, Schedule incumbent, int hosts, double bound) {
  return Search(jobs, std::move(incumbent), hosts, bound).run();
}

}  // namespace tessera::reshard_order
