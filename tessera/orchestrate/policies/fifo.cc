// First in, first out: jobs start in the order of submission, on the GPUs that they asked for, and
// run to their end. The first that does not fit holds the others up.
#include "tessera/orchestrate/policies/makers.h"
#include "tessera/orchestrate/share/rigid.h"

namespace tessera::share {
namespace {

class Fifo : public Policy {
 public:
  Decision decide(const View& view) override {
    std::vector<double> keys;
    for (const JobView& job : view.jobs) keys.push_back(job.id);
    return run_in_order(view, sorted_by(view.jobs.size(), keys), /*holds_up=*/true);
  }
  double wakes_after(const View&) const override { return kNever; }
};

}  // namespace

std::unique_ptr<Policy> make_fifo(const PolicyOptions&) { return std::make_unique<Fifo>(); }

}  // namespace tessera::share
