// ElasticFlow: deadlines are kept by minimum shares. Jobs in the order of their deadlines reserve, in
// slots of time until then, the least number of GPUs (a power of two, the same in each slot as far as
// there is room) with which they end in time. A job for which no number suffices cannot keep its
// deadline, and runs when others leave GPUs, as jobs without a deadline do. GPUs that no reservation
// needs now go, by doubling, to the job that saves the most GPU time, or loses the least.
#include <algorithm>
#include <cmath>

#include "tessera/orchestrate/policies/makers.h"
#include "tessera/orchestrate/share/packing.h"

namespace tessera::share {
namespace {

constexpr size_t kSlots = 64;  // until the latest deadline

class ElasticFlow : public Policy {
 public:
  Decision decide(const View& view) override {
    const Machines& machines = *view.machines;
    const int all = machines.gpus(0);
    double latest = view.now_s + view.round_s;
    for (const JobView& job : view.jobs) {
      if (job.spec->deadline_s < kNever) latest = std::max(latest, job.spec->deadline_s);
    }
    slot_s_ = std::max(view.round_s, (latest - view.now_s) / static_cast<double>(kSlots));
    std::vector<int> free(kSlots + 1, all), sizes(view.jobs.size());
    std::vector<double> keys;
    for (const JobView& job : view.jobs) keys.push_back(job.spec->deadline_s);
    std::vector<size_t> order(view.jobs.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return keys[a] < keys[b]; });
    for (const size_t i : order) {
      if (view.jobs[i].spec->deadline_s < kNever) sizes[i] = reserve(view, view.jobs[i], free);
    }
    int left = free[0];
    for (const size_t i : order) {  // what has no reservation, one after another
      const int least = view.jobs[i].model().least_gpus();
      if (sizes[i] > 0 || least > left) continue;
      sizes[i] = least;
      left -= least;
    }
    spread(view, sizes, left);
    std::vector<GpuOption> placed;
    for (const int size : sizes) placed.push_back({0, size});
    return {place_packed(view, placed)};
  }

 private:
  static double speed(const View& view, const JobView& job, int gpus) {
    return gpus == 0 ? 0
                     : job.model().rate(*job.run, view.machines->packed(gpus), BatchRule::kKnown);
  }

  // Reserves the least size with which the job ends in time, and returns what it has in the first slot.
  int reserve(const View& view, const JobView& job, std::vector<int>& free) const {
    const double work = job.model().total() - job.run->done;
    const double time = job.spec->deadline_s - view.now_s;
    const int most = job.model().most_gpus(BatchRule::kKnown);
    for (int size = job.model().least_gpus(); size <= most; size *= 2) {
      std::vector<int> taken(free.size());
      double done = 0;
      for (size_t slot = 0; slot < kSlots && done < work; ++slot) {
        const double from = static_cast<double>(slot) * slot_s_;
        if (from >= time) break;
        int own = size;
        while (own > free[slot]) own /= 2;
        if (own < job.model().least_gpus()) continue;
        const bool pauses = slot == 0 && own != job.gpus();
        done += speed(view, job, own) *
                std::max(0.0, std::min(slot_s_, time - from) - (pauses ? view.switch_s : 0));
        taken[slot] = own;
      }
      if (done < work) continue;
      for (size_t slot = 0; slot < free.size(); ++slot) free[slot] -= taken[slot];
      return taken[0];
    }
    return 0;
  }

  // Doubles sizes while GPUs are left, each time of the job whose GPU time grows least.
  static void spread(const View& view, std::vector<int>& sizes, int left) {
    for (;;) {
      size_t best = sizes.size();
      double most = 0;
      for (size_t i = 0; i < sizes.size(); ++i) {
        const JobView& job = view.jobs[i];
        const int more = sizes[i];
        if (more == 0 || more > left || 2 * more > job.model().most_gpus(BatchRule::kKnown))
          continue;
        const double now = speed(view, job, more), then = speed(view, job, 2 * more);
        const double gain = now > 0 ? (then / now - 1) : 0;
        if (gain <= most + 1e-12) continue;
        most = gain;
        best = i;
      }
      if (best == sizes.size()) return;
      left -= sizes[best];
      sizes[best] *= 2;
    }
  }

  BatchRule batch_rule() const override { return BatchRule::kKnown; }

  double slot_s_ = 60;
};

}  // namespace

std::unique_ptr<Policy> make_elasticflow(const PolicyOptions&) {
  return std::make_unique<ElasticFlow>();
}

}  // namespace tessera::share
