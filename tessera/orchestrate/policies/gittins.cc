// Tiresias with the Gittins index: the distribution of services (GPU seconds) is known, a job's own is
// not. The index of a job that has attained service a is the greatest, over all quanta d, of
//   P(S - a <= d | S > a) / E[min(S - a, d) | S > a].
// Jobs run in descending order of their index. The distribution is that of the jobs that have been
// submitted so far, on the GPUs that they asked for. So that jobs of nearly the same service do not
// take each other's GPUs in turns, a job's service is counted in steps of a quarter of its doubling.
#include <algorithm>
#include <cmath>
#include <map>

#include "tessera/orchestrate/policies/makers.h"
#include "tessera/orchestrate/share/rigid.h"

namespace tessera::share {
namespace {

constexpr double kLeastService = 600;  // GPU seconds below which jobs are equal

double stepped(double service) {
  if (service < kLeastService) return 0;
  return kLeastService * std::exp2(std::floor(4 * std::log2(service / kLeastService)) / 4);
}

// Returns the index of a job with so much service, where `services` are sorted.
double gittins_index(const std::vector<double>& services, double attained) {
  const auto first = std::upper_bound(services.begin(), services.end(), attained);
  const auto left = static_cast<double>(services.end() - first);
  if (left == 0) return 0;
  double best = 0, served = 0, done = 0;
  for (auto it = first; it != services.end(); ++it) {
    // The quantum that ends exactly when this service does.
    const double quantum = *it - attained;
    served += quantum;
    ++done;
    best = std::max(best, done / (served + (left - done) * quantum));
  }
  return best;
}

class Gittins : public Policy {
 public:
  Decision decide(const View& view) override {
    for (const JobView& job : view.jobs) {
      if (job.id < next_) continue;
      const double own = asked_seconds_left(view, job, batch_rule()) * job.spec->gpus;
      services_.insert(std::upper_bound(services_.begin(), services_.end(), own), own);
      next_ = job.id + 1;
    }
    std::map<double, double> known;  // by attained service
    std::vector<double> keys;
    for (const JobView& job : view.jobs) {
      const double attained = stepped(job.gpu_seconds);
      const auto [at, is_new] = known.emplace(attained, 0);
      if (is_new) at->second = -gittins_index(services_, attained);
      keys.push_back(at->second);
    }
    return run_in_order(view, sorted_by(view.jobs.size(), keys), /*holds_up=*/false);
  }

 private:
  std::vector<double> services_;  // of all jobs so far, in ascending order
  int next_ = 0;
};

}  // namespace

std::unique_ptr<Policy> make_gittins(const PolicyOptions&) { return std::make_unique<Gittins>(); }

}  // namespace tessera::share
