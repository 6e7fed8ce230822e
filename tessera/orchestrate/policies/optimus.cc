// Optimus with an oracle for the steps that are left. Every job gets a GPU, in the order of
// submission, while there are any. Then GPUs go one by one to the job with the greatest
// (step(n) - step(n + 1)) * steps left, until no gain is positive or no GPU is left. Steps are
// estimated for GPUs that are packed on as few nodes as possible. Only jobs whose number changed are
// placed anew.
#include <algorithm>

#include "tessera/orchestrate/policies/makers.h"
#include "tessera/orchestrate/share/placement.h"

namespace tessera::share {
namespace {

class Optimus : public Policy {
 public:
  Decision decide(const View& view) override {
    const int a_node = view.machines->largest_node();
    int left = view.machines->gpus();
    std::vector<int> sizes(view.jobs.size());
    for (size_t i = 0; i < sizes.size(); ++i) {
      const int least = view.jobs[i].model().least_gpus();  // 1, except where a model needs more
      sizes[i] = least <= left ? least : 0;
      left -= sizes[i];
    }
    std::vector<double> steps;
    for (const JobView& job : view.jobs) steps.push_back(job.model().steps_left(*job.run));
    const auto gain = [&](size_t i) -> double {
      const JobModel& model = view.jobs[i].model();
      if (sizes[i] == 0 || sizes[i] + 1 > model.most_gpus(batch_rule()) || left == 0) return 0;
      return (model.packed_step_s(sizes[i], a_node) - model.packed_step_s(sizes[i] + 1, a_node)) *
             steps[i];
    };
    std::vector<double> gains;
    for (size_t i = 0; i < sizes.size(); ++i) gains.push_back(gain(i));
    while (left > 0 && !gains.empty()) {
      const auto best = std::max_element(gains.begin(), gains.end());
      if (*best <= 0) break;
      const auto i = static_cast<size_t>(best - gains.begin());
      ++sizes[i];
      --left;
      gains[i] = gain(i);
    }
    return {place_changed(view, sizes)};
  }
};

}  // namespace

std::unique_ptr<Policy> make_optimus(const PolicyOptions&) { return std::make_unique<Optimus>(); }

}  // namespace tessera::share
