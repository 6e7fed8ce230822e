// Shortest job first: of the waiting jobs, those start first that would be done soonest on the GPUs
// that they asked for. Running jobs run to their end. Durations are known (an oracle).
#include "tessera/orchestrate/policies/makers.h"
#include "tessera/orchestrate/share/rigid.h"

namespace tessera::share {
namespace {

class ShortestJobFirst : public Policy {
 public:
  Decision decide(const View& view) override {
    std::vector<double> keys;
    for (const JobView& job : view.jobs) {
      const bool runs = !job.allocation.empty();
      keys.push_back(runs ? -1 : asked_seconds_left(view, job, batch_rule()));
    }
    return run_in_order(view, sorted_by(view.jobs.size(), keys), /*holds_up=*/false);
  }
  double wakes_after(const View&) const override { return kNever; }
};

}  // namespace

std::unique_ptr<Policy> make_sjf(const PolicyOptions&) {
  return std::make_unique<ShortestJobFirst>();
}

}  // namespace tessera::share
