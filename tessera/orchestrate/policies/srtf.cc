// Shortest remaining time first: at each decision those jobs run that would be done soonest on the
// GPUs that they asked for; others are pre-empted. Durations are known (an oracle). The order can
// only change when a job comes or ends: what runs becomes shorter, what waits does not.
#include "tessera/orchestrate/policies/makers.h"
#include "tessera/orchestrate/share/rigid.h"

namespace tessera::share {
namespace {

class ShortestRemainingFirst : public Policy {
 public:
  Decision decide(const View& view) override {
    std::vector<double> keys;
    for (const JobView& job : view.jobs)
      keys.push_back(asked_seconds_left(view, job, batch_rule()));
    return run_in_order(view, sorted_by(view.jobs.size(), keys), /*holds_up=*/false);
  }
  double wakes_after(const View&) const override { return kNever; }
};

}  // namespace

std::unique_ptr<Policy> make_srtf(const PolicyOptions&) {
  return std::make_unique<ShortestRemainingFirst>();
}

}  // namespace tessera::share
