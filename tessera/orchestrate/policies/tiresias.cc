// Tiresias, two-dimensional least attained service with two queues. A job's service is the time that
// it had GPUs, times their number. It is in the first queue until 16 GPU hours, then in the second,
// for good. At each decision the first queue is walked and then the second, each in order of entry; a
// job runs if its GPUs still fit, and is pre-empted if not.
#include <algorithm>
#include <map>

#include "tessera/orchestrate/policies/makers.h"
#include "tessera/orchestrate/share/rigid.h"

namespace tessera::share {
namespace {

constexpr double kThreshold = 16 * 3600;  // GPU seconds

class Tiresias : public Policy {
 public:
  Decision decide(const View& view) override {
    std::map<int, size_t> at;  // from the number of a job to its place in the view
    for (size_t i = 0; i < view.jobs.size(); ++i) at[view.jobs[i].id] = i;
    for (std::vector<int>* queue : {&first_, &second_})
      std::erase_if(*queue, [&](int job) { return !at.contains(job); });
    for (const JobView& job : view.jobs) {
      if (job.id < next_) continue;
      first_.push_back(job.id);
      next_ = job.id + 1;
    }
    for (const JobView& job : view.jobs) {
      const bool runs = !job.allocation.empty();
      if (!runs || job.held_s * job.spec->gpus < kThreshold) continue;
      if (std::erase(first_, job.id) > 0) second_.push_back(job.id);
    }
    std::vector<size_t> order;
    for (const std::vector<int>* queue : {&first_, &second_}) {
      for (const int job : *queue) order.push_back(at[job]);
    }
    return run_in_order(view, order, /*holds_up=*/false);
  }

  // Returns the time until the first running job of the first queue has had its service.
  double wakes_after(const View& view) const override {
    double out = kNever;
    for (const JobView& job : view.jobs) {
      if (std::find(first_.begin(), first_.end(), job.id) == first_.end()) continue;
      const double left = kThreshold / job.spec->gpus - job.held_s;
      out = std::min(out, std::max(left, view.round_s));
    }
    return out;
  }

 private:
  std::vector<int> first_, second_;  // queues of jobs by number
  int next_ = 0;                     // the number of the first job that no queue has had
};

}  // namespace

std::unique_ptr<Policy> make_tiresias(const PolicyOptions&) { return std::make_unique<Tiresias>(); }

}  // namespace tessera::share
