#include "tessera/orchestrate/share/metrics.h"

#include <algorithm>
#include <cmath>

#include "tessera/base/statistics.h"

namespace tessera::share {
namespace {

// The mean number of jobs that are in the cluster between two times, from the sums of all ends and
// submissions before a time.
class Crowd {
 public:
  Crowd(const std::vector<JobSpec>& jobs, const Outcome& outcome) {
    for (size_t i = 0; i < jobs.size(); ++i) {
      starts_.push_back(jobs[i].submit_s);
      ends_.push_back(outcome.jobs[i].end_s);
    }
    std::sort(starts_.begin(), starts_.end());
    std::sort(ends_.begin(), ends_.end());
    const auto sums = [](const std::vector<double>& times) {
      std::vector<double> out{0};
      for (const double time : times) out.push_back(out.back() + time);
      return out;
    };
    start_sums_ = sums(starts_);
    end_sums_ = sums(ends_);
  }
  double mean(double from, double to) const {
    return to > from ? (area(to) - area(from)) / (to - from) : 1;
  }

 private:
  // Returns the job seconds until a time.
  double area(double time) const {
    return part(starts_, start_sums_, time) - part(ends_, end_sums_, time);
  }
  static double part(const std::vector<double>& times, const std::vector<double>& sums,
                     double time) {
    const auto count =
        static_cast<size_t>(std::upper_bound(times.begin(), times.end(), time) - times.begin());
    return static_cast<double>(count) * time - sums[count];
  }

  std::vector<double> starts_, ends_, start_sums_, end_sums_;
};

void add_fairness(Summary& out, const std::vector<JobSpec>& jobs, const Machines& machines,
                  const Outcome& outcome, BatchRule rule) {
  const Crowd crowd(jobs, outcome);
  for (size_t i = 0; i < jobs.size(); ++i) {
    const double jct = outcome.jobs[i].end_s - jobs[i].submit_s;
    const double others = std::max(1.0, crowd.mean(jobs[i].submit_s, outcome.jobs[i].end_s));
    const JobModel& model = *jobs[i].model;
    // Alone on its share: with the whole GPUs of the share, for a longer or shorter time by the rest.
    const double share = machines.gpus() / others;
    const int gpus = std::clamp(static_cast<int>(share), std::max(1, model.least_gpus()),
                                std::max({1, model.least_gpus(), jobs[i].gpus}));
    JobRun run;
    const Shape shape = machines.packed(gpus);
    if (shape.gpus.empty()) continue;
    model.retune(run, shape, rule);
    const double alone = model.seconds_left(run, shape, rule) * std::max(1.0, gpus / share);
    if (!std::isfinite(alone) || alone <= 0) continue;
    const double fairness = jct / alone;
    out.mean_fairness += fairness / static_cast<double>(jobs.size());
    out.worst_fairness = std::max(out.worst_fairness, fairness);
    out.unfair += fairness > 1 ? 1 : 0;
  }
}

// Returns the USD that the jobs' GPUs cost, from the changes of allocations.
double cost_of(const Machines& machines, const Outcome& outcome, const Prices& prices) {
  if (prices.empty()) return 0;
  double out = 0;
  std::vector<double> since(outcome.jobs.size());
  std::vector<const Allocation*> held(outcome.jobs.size());
  for (const Change& change : outcome.changes) {
    const auto job = static_cast<size_t>(change.job);
    if (held[job] != nullptr && !held[job]->empty()) {
      const auto type = static_cast<size_t>(machines.shape(*held[job]).type);
      out += (change.at_s - since[job]) / 3600 * held[job]->gpus() * prices[type];
    }
    held[job] = &change.allocation;
    since[job] = change.at_s;
  }
  return out;
}

}  // namespace

double quantile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double at = share * static_cast<double>(values.size() - 1);
  const auto low = static_cast<size_t>(at);
  const size_t high = std::min(low + 1, values.size() - 1);
  return values[low] + (at - static_cast<double>(low)) * (values[high] - values[low]);
}

Summary summarize(const std::vector<JobSpec>& jobs, const Machines& machines,
                  const Outcome& outcome, BatchRule rule, const Prices& prices) {
  Summary out;
  std::vector<double> jct;
  for (size_t i = 0; i < jobs.size(); ++i) {
    const JobOutcome& job = outcome.jobs[i];
    const double own = job.end_s - jobs[i].submit_s, count = static_cast<double>(jobs.size());
    jct.push_back(own);
    out.makespan_s = std::max(out.makespan_s, job.end_s);
    out.mean_execution_s += job.usage.held_s / count;
    out.mean_queueing_s += (own - job.usage.held_s) / count;
    out.switching_gpu_h += job.usage.switching_gpu_seconds / 3600;
    out.moved_bytes += job.usage.moved_bytes;
    out.gpu_h += job.usage.gpu_seconds / 3600;
    if (jobs[i].deadline_s == kNever) continue;
    ++out.deadlines;
    out.missed_deadlines += job.end_s > jobs[i].deadline_s ? 1 : 0;
  }
  out.mean_jct_s = mean(jct);
  out.median_jct_s = median(jct);
  out.p90_jct_s = quantile(jct, 0.9);
  out.p99_jct_s = quantile(jct, 0.99);
  out.utilisation = out.makespan_s > 0 ? out.gpu_h * 3600 / (machines.gpus() * out.makespan_s) : 0;
  add_fairness(out, jobs, machines, outcome, rule);
  out.cost_usd = cost_of(machines, outcome, prices);
  return out;
}

}  // namespace tessera::share
