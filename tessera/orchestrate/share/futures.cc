#include "tessera/orchestrate/share/futures.h"

#include <algorithm>
#include <cmath>
#include <queue>

#include "tessera/orchestrate/share/job.h"

namespace tessera::share {
namespace {

constexpr double kPower = 1.5;  // of completion times: above 1, so that long ones count more
constexpr double kLate = 20;    // how many times a second past a deadline counts
// With prices: what a missed deadline counts, and a second of completion time, so that of equally cheap
// futures the shorter one is taken.
constexpr double kMissed = 1e9, kSecond = 1e-9;

bool is_here(const FluidJob& job) { return job.left > 0 && job.arrives_s <= 0; }

// The next larger option of a job, with its gain per GPU.
struct Offer {
  double gain = 0;
  int job = 0, option = 0, from = -1;
  bool operator<(const Offer& other) const {
    return gain != other.gain ? gain < other.gain : job > other.job;
  }
};

}  // namespace

Futures::Futures(std::vector<GpuOption> options, std::vector<int> budget, double switch_s,
                 std::vector<double> prices)
    : options_(std::move(options)),
      budget_(std::move(budget)),
      switch_s_(switch_s),
      prices_(std::move(prices)) {}

double Futures::pause_of(const FluidJob& job, size_t option) const {
  if (static_cast<int>(option) == job.current) return job.pause_s;
  return job.pauses.empty() ? switch_s_ : job.pauses[option];
}

double Futures::time_of(const FluidJob& job, size_t option) const {
  return job.left * job.seconds[option] + pause_of(job, option);
}

double Futures::price_of(const FluidJob& job, size_t option) const {
  const GpuOption& own = options_[option];
  return prices_[static_cast<size_t>(own.type)] * own.gpus * time_of(job, option);
}

double Futures::value(const FluidJob& job, size_t option, double scale) const {
  const double time = time_of(job, option);
  return time < kNever ? scale / std::max(time, 1e-9) : 0;
}

std::vector<int> Futures::in_order(const std::vector<FluidJob>& jobs) const {
  std::vector<int> out(jobs.size(), -1), left = budget_;
  const auto take = [&](size_t i, int option) {
    const GpuOption& wanted = options_[static_cast<size_t>(option)];
    if (left[static_cast<size_t>(wanted.type)] < wanted.gpus) return false;
    left[static_cast<size_t>(wanted.type)] -= wanted.gpus;
    out[i] = option;
    return true;
  };
  for (size_t i = 0; i < jobs.size(); ++i) {
    if (!is_here(jobs[i])) continue;
    const int option = jobs[i].current >= 0 ? jobs[i].current : jobs[i].asked;
    if (option >= 0 && !take(i, option)) break;
  }
  return out;
}

std::vector<int> Futures::shortest(const std::vector<FluidJob>& jobs) const {
  std::vector<int> out(jobs.size(), -1), left = budget_;
  std::vector<std::pair<double, size_t>> order;
  for (size_t i = 0; i < jobs.size(); ++i) {
    if (!is_here(jobs[i])) continue;
    double least = kNever;
    for (size_t k = 0; k < options_.size(); ++k) least = std::min(least, time_of(jobs[i], k));
    order.emplace_back(least, i);
  }
  std::sort(order.begin(), order.end());
  for (const auto& [seconds, i] : order) {
    double best = kNever;
    for (size_t k = 0; k < options_.size(); ++k) {
      const bool fits = options_[k].gpus <= left[static_cast<size_t>(options_[k].type)];
      if (!fits || time_of(jobs[i], k) >= best) continue;
      best = time_of(jobs[i], k);
      out[i] = static_cast<int>(k);
    }
    if (out[i] < 0) continue;
    const GpuOption& own = options_[static_cast<size_t>(out[i])];
    left[static_cast<size_t>(own.type)] -= own.gpus;
  }
  return out;
}

std::vector<int> Futures::greedy(const std::vector<FluidJob>& jobs, double exponent,
                                 bool keeps) const {
  std::vector<int> out(jobs.size(), -1), left = budget_;
  std::priority_queue<Offer> offers;
  // Factors that a job's values have in common: weight * (left * u)^(1 - exponent).
  std::vector<double> scales;
  for (const FluidJob& job : jobs) {
    const double size = std::max(job.left * job.least_gpu_s, 1e-9);
    const bool counts = is_here(job) && exponent != 1;
    scales.push_back(job.weight * (counts ? std::pow(size, 1 - exponent) : 1));
  }
  // Returns the option with the greatest gain per GPU over what the job has.
  const auto best = [&](int i, int from) {
    const FluidJob& job = jobs[static_cast<size_t>(i)];
    const double scale = scales[static_cast<size_t>(i)];
    const double now = from < 0 ? 0 : value(job, static_cast<size_t>(from), scale);
    const GpuOption has = from < 0 ? GpuOption{-1, 0} : options_[static_cast<size_t>(from)];
    Offer offer{0, i, -1, from};
    for (size_t k = 0; k < options_.size(); ++k) {
      const int more = options_[k].gpus - has.gpus;
      if (more <= 0 || (from >= 0 && options_[k].type != has.type)) continue;
      if (more > left[static_cast<size_t>(options_[k].type)]) continue;
      const double gain = (value(job, k, scale) - now) / more;
      if (gain > offer.gain * (1 + 1e-12)) offer = {gain, i, static_cast<int>(k), from};
    }
    return offer;
  };
  const auto give = [&](int i, int option) {
    int& had = out[static_cast<size_t>(i)];
    if (had >= 0) {
      const GpuOption& before = options_[static_cast<size_t>(had)];
      left[static_cast<size_t>(before.type)] += before.gpus;
    }
    had = option;
    const GpuOption& now = options_[static_cast<size_t>(option)];
    left[static_cast<size_t>(now.type)] -= now.gpus;
  };
  // First what is guaranteed, what is kept, and what deadlines need.
  std::vector<int> urgent;
  for (size_t i = 0; i < jobs.size(); ++i) {
    const FluidJob& job = jobs[i];
    if (!is_here(job)) continue;
    if (keeps && job.current >= 0) give(static_cast<int>(i), job.current);
    if (job.guaranteed > 0 || job.deadline_s < kNever) urgent.push_back(static_cast<int>(i));
  }
  std::stable_sort(urgent.begin(), urgent.end(), [&](int a, int b) {
    return jobs[static_cast<size_t>(a)].deadline_s < jobs[static_cast<size_t>(b)].deadline_s;
  });
  for (const int i : urgent) {
    const FluidJob& job = jobs[static_cast<size_t>(i)];
    int chosen = -1;
    for (size_t k = 0; k < options_.size(); ++k) {
      const bool in_time = job.deadline_s == kNever || time_of(job, k) <= job.deadline_s;
      const bool fits = options_[k].gpus <= left[static_cast<size_t>(options_[k].type)];
      if (!fits || !in_time || options_[k].gpus < job.guaranteed || job.seconds[k] == kNever)
        continue;
      if (chosen < 0 || options_[k].gpus < options_[static_cast<size_t>(chosen)].gpus)
        chosen = static_cast<int>(k);
    }
    if (chosen >= 0 && out[static_cast<size_t>(i)] < 0) give(i, chosen);
  }
  for (size_t i = 0; i < jobs.size(); ++i) {
    if (!is_here(jobs[i]) || (keeps && jobs[i].current >= 0)) continue;
    const Offer offer = best(static_cast<int>(i), out[i]);
    if (offer.option >= 0) offers.push(offer);
  }
  while (!offers.empty()) {
    const Offer offer = offers.top();
    offers.pop();
    const GpuOption& wanted = options_[static_cast<size_t>(offer.option)];
    const int had = offer.from < 0 ? 0 : options_[static_cast<size_t>(offer.from)].gpus;
    const bool fits = wanted.gpus - had <= left[static_cast<size_t>(wanted.type)];
    if (fits) give(offer.job, offer.option);
    const Offer next = best(offer.job, out[static_cast<size_t>(offer.job)]);
    if (next.option >= 0) offers.push(next);
  }
  return out;
}

std::vector<int> Futures::by_price(const std::vector<FluidJob>& jobs, bool waits) const {
  std::vector<int> out(jobs.size(), -1), left = budget_;
  std::vector<std::pair<double, size_t>> order;  // by the time that a job can still wait
  for (size_t i = 0; i < jobs.size(); ++i) {
    if (!is_here(jobs[i])) continue;
    double least = kNever;
    for (size_t k = 0; k < options_.size(); ++k) least = std::min(least, time_of(jobs[i], k));
    // A deadline that cannot be kept any more counts as none, so that it costs no other job its own.
    const double slack = least == kNever ? kNever : jobs[i].deadline_s - least;
    order.emplace_back(slack < 0 ? kNever : slack, i);
  }
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [slack, i] : order) {
    const FluidJob& job = jobs[i];
    int cheapest = -1, fitting = -1, fastest = -1;  // in time; in time and fits; fits
    const auto is_better = [](double value, double than, int than_option) {
      return than_option < 0 || value < than * (1 - 1e-12);
    };
    double cheapest_price = 0, fitting_price = 0, fastest_s = 0;
    for (size_t k = 0; k < options_.size(); ++k) {
      const double seconds = time_of(job, k);
      if (seconds == kNever || options_[k].gpus < job.guaranteed) continue;
      const double price = price_of(job, k);
      const bool fits = options_[k].gpus <= left[static_cast<size_t>(options_[k].type)];
      const bool in_time = slack == kNever || seconds <= job.deadline_s;
      const int option = static_cast<int>(k);
      if (in_time && is_better(price, cheapest_price, cheapest)) {
        cheapest = option;
        cheapest_price = price;
      }
      if (fits && in_time && is_better(price, fitting_price, fitting)) {
        fitting = option;
        fitting_price = price;
      }
      if (fits && is_better(seconds, fastest_s, fastest)) {
        fastest = option;
        fastest_s = seconds;
      }
    }
    if (waits && cheapest >= 0 && (fitting < 0 || cheapest_price < fitting_price * (1 - 1e-12)))
      continue;
    out[i] = fitting >= 0 ? fitting : fastest;
    if (out[i] < 0) continue;
    const GpuOption& own = options_[static_cast<size_t>(out[i])];
    left[static_cast<size_t>(own.type)] -= own.gpus;
  }
  return out;
}

std::vector<int> Futures::share(const std::vector<FluidJob>& jobs, const ShareRule& rule,
                                bool is_first) const {
  switch (rule.kind) {
    case ShareRule::Kind::kInOrder: return in_order(jobs);
    case ShareRule::Kind::kShortest: return shortest(jobs);
    case ShareRule::Kind::kKeep: return greedy(jobs, rule.exponent, is_first);
    case ShareRule::Kind::kCheapest: return by_price(jobs, false);
    case ShareRule::Kind::kPatient: return by_price(jobs, true);
    case ShareRule::Kind::kGreedy: break;
  }
  return greedy(jobs, rule.exponent, false);
}

double Futures::play(std::vector<FluidJob> jobs, const ShareRule& rule, std::vector<int> chosen,
                     int most_steps) const {
  double now = 0, sum = 0;
  const auto finish = [&](FluidJob& job, double at) {
    job.left = 0;
    if (!prices_.empty()) {
      const double late = job.deadline_s < kNever ? at - job.deadline_s : 0;
      sum += kSecond * at + (late > 1e-6 ? kMissed : 0);
      return;
    }
    sum += job.weight * std::pow(std::max(at - job.arrives_s, 0.0), kPower);
    if (job.deadline_s < kNever)
      sum += job.weight * std::pow(kLate * std::max(0.0, at - job.deadline_s), kPower);
  };
  const auto pay = [&](size_t option, double seconds) {
    if (prices_.empty()) return;
    sum += prices_[static_cast<size_t>(options_[option].type)] * options_[option].gpus * seconds;
  };
  for (int step = 0; step < most_steps; ++step) {
    double next = kNever;
    for (size_t i = 0; i < jobs.size(); ++i) {
      FluidJob& job = jobs[i];
      if (job.left <= 0) continue;
      if (job.arrives_s > now) {
        next = std::min(next, job.arrives_s - now);
        continue;
      }
      if (chosen[i] != job.current)
        job.pause_s = chosen[i] < 0 ? 0 : pause_of(job, static_cast<size_t>(chosen[i]));
      job.current = chosen[i];
      if (job.current < 0) continue;
      next = std::min(next, job.pause_s + job.left * job.seconds[static_cast<size_t>(job.current)]);
    }
    if (next == kNever) break;
    for (FluidJob& job : jobs) {
      if (job.left <= 0 || job.arrives_s > now || job.current < 0) continue;
      pay(static_cast<size_t>(job.current), next);
      const double worked = std::max(0.0, next - job.pause_s);
      job.pause_s = std::max(0.0, job.pause_s - next);
      job.left -= worked / job.seconds[static_cast<size_t>(job.current)];
      if (job.left < 1e-9) finish(job, now + next);
    }
    now += next;
    std::vector<FluidJob>& shifted = jobs;
    // share() sees times from now.
    for (FluidJob& job : shifted) {
      job.arrives_s -= now;
      if (job.deadline_s < kNever) job.deadline_s -= now;
    }
    chosen = share(shifted, rule, false);
    for (FluidJob& job : shifted) {
      job.arrives_s += now;
      if (job.deadline_s < kNever) job.deadline_s += now;
    }
  }
  for (FluidJob& job : jobs) {
    if (job.left <= 0) continue;
    double best = kNever;
    for (const double seconds : job.seconds) best = std::min(best, seconds);
    const double own = job.current >= 0 ? job.seconds[static_cast<size_t>(job.current)] : 2 * best;
    if (job.current >= 0) pay(static_cast<size_t>(job.current), job.left * std::min(own, 1e12));
    finish(job, std::max(now, job.arrives_s) + job.left * std::min(own, 1e12));
  }
  return sum;
}

}  // namespace tessera::share
