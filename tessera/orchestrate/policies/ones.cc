// ONES: evolutionary search over schedules, with batches that follow the number of GPUs. Each decision
// refreshes a population, adds children and mutants, fills and reorders them, and keeps those of the
// least score (GPU seconds that are left, as predicted). The best is deployed when each job that it
// moves has finished an epoch since it was last placed. docs/reference/policies.md: what is mended.
#include <algorithm>
#include <cmath>
#include <set>

#include "tessera/base/statistics.h"
#include "tessera/orchestrate/policies/makers.h"
#include "tessera/orchestrate/policies/ones_genome.h"
#include "tessera/orchestrate/share/beta_regression.h"

namespace tessera::share {
namespace {

using namespace ones;
constexpr size_t kPopulation = 16;
constexpr double kCrossover = 0.5, kMutation = 0.3;
constexpr double kWarmUp = 2;        // epochs before a job may be scaled or pre-empted
constexpr double kUpdateEpochs = 1;  // epochs after a change before the next one
constexpr int kMostOfAsked = 4;      // a limit is at most so many times the asked GPUs

struct JobState {
  int limit = 1;         // R
  int stored = 0;        // the size with which a stopped job resumes
  int granted = 0;       // GPUs that it may have beside its own
  double scaled_at = 0;  // epochs at its last scaling
  double placed_at = 0;  // epochs when it was last placed
  int last_size = 0;
  std::map<int, double> throughput;  // by GPUs, as seen
  std::vector<ProgressRow> history;  // a row for each epoch
};

class Ones : public Policy {
 public:
  explicit Ones(uint64_t seed) : seed_(seed), random_(seed) {}
  BatchRule batch_rule() const override { return BatchRule::kLinear; }
  bool changes_live() const override { return true; }

  Decision decide(const View& view) override {
    observe(view);
    const Facts facts = make_facts(view);
    const Genome before = deployed(view);
    evolve(facts, before);
    return deploy(view, facts, before, population_.front());
  }

 private:
  static double epochs_of(const JobView& job) {
    return job.run->done / job.model().total() * static_cast<double>(job.model().epochs());
  }

  // Learns from the jobs that ended, and notes what is seen of the running ones.
  void observe(const View& view) {
    std::set<int> active;
    for (const JobView& job : view.jobs) active.insert(job.id);
    bool has_ended = false;
    for (auto it = states_.begin(); it != states_.end();) {
      if (active.contains(it->first)) {
        ++it;
        continue;
      }
      const double last = it->second.history.empty() ? 0 : it->second.history.back().epochs + 1;
      for (ProgressRow row : it->second.history) {
        row.share = row.epochs / last;
        history_.push_back(row);
      }
      it = states_.erase(it);
      has_ended = true;
    }
    if (has_ended) predictor_.fit(history_, seed_);
    for (const JobView& job : view.jobs) {
      JobState& state = states_[job.id];
      const ProgressRow row = progress_row(job.model().observe(*job.run));
      if (row.epochs >= 1 && (state.history.empty() ||
                              std::floor(row.epochs) > std::floor(state.history.back().epochs)))
        state.history.push_back(row);
      const int size = job.gpus();
      if (size != state.last_size) {
        state.placed_at = epochs_of(job);
        if (size != 0) state.granted = 0;
        if (size == 0) state.stored = state.limit;
        state.last_size = size;
      }
      if (size > 0) {
        state.throughput[size] =
            job.model().rate(*job.run, view.machines->shape(job.allocation), batch_rule());
      }
    }
  }

  Facts make_facts(const View& view) {
    scale(view);
    Facts out;
    for (const JobView& job : view.jobs) {
      JobState& state = states_[job.id];
      const double epochs = epochs_of(job);
      JobFacts& fact = out[job.id];
      fact.is_executed = epochs >= kWarmUp;
      fact.is_new = !fact.is_executed;
      const int most = job.model().most_gpus(batch_rule());
      const int allowed = job.allocation.empty() ? (fact.is_executed ? state.stored : 0)
                                                 : job.gpus() + state.granted;
      fact.limit = std::min(state.limit, most);
      fact.allowed = std::min(allowed, most);
      fact.throughput = [&state](int gpus) { return interpolated(state.throughput, gpus); };
      fact.has_prediction = fact.is_executed && !state.history.empty();
      if (!fact.has_prediction) continue;
      const double alpha = std::max(state.history.back().epochs, 1e-3);
      const double share = random_.beta(alpha, predictor_.beta(state.history.back()));
      fact.left = job.run->done * (1 / std::clamp(share, 1e-3, 1.0) - 1);
    }
    return out;
  }

  // Raises limits of jobs that have run long enough at their size, and lowers that of the greatest.
  void scale(const View& view) {
    const int gpus = view.machines->gpus();
    const JobView* greatest = nullptr;
    std::vector<double> run_times;
    for (const JobView& job : view.jobs) {
      if (job.held_s > 0) run_times.push_back(job.held_s);
      if (job.allocation.empty()) continue;
      JobState& state = states_[job.id];
      const double epochs = epochs_of(job);
      if (epochs < kWarmUp || epochs - state.scaled_at < kWarmUp) continue;
      const int size = job.gpus();
      if (size == state.limit) state.limit = std::min(gpus, 2 * state.limit);
      state.granted = std::max(0, std::min(state.limit, kMostOfAsked * job.spec->gpus) - size);
      state.scaled_at = epochs;
      if (greatest == nullptr || size > greatest->gpus()) greatest = &job;
    }
    if (greatest == nullptr || greatest->gpus() < gpus / 2) return;
    const double middle = median(run_times);
    if (greatest->held_s <= middle) return;
    JobState& state = states_[greatest->id];
    state.limit =
        std::min(greatest->gpus(), scaled_down(greatest->gpus(), greatest->held_s, middle));
    state.granted = state.limit - greatest->gpus();
  }

  // Returns the deployed schedule without the jobs that have ended. The order of jobs inside a node is
  // kept here: allocations do not have it.
  Genome deployed(const View& view) const {
    Genome out = deployed_;
    out.resize(static_cast<size_t>(view.machines->gpus()), kFree);
    std::set<int> running;
    for (const JobView& job : view.jobs) {
      if (!job.allocation.empty()) running.insert(job.id);
    }
    for (int& job : out) {
      if (!running.contains(job)) job = kFree;
    }
    return out;
  }

  void evolve(const Facts& facts, const Genome& before) {
    if (population_.empty()) {
      std::vector<int> jobs;
      for (const auto& [job, fact] : facts) jobs.push_back(job);
      random_.shuffle(jobs);
      Genome first(before.size(), kFree);
      std::copy_n(jobs.begin(), std::min(jobs.size(), first.size()), first.begin());
      population_.assign(kPopulation, first);
    }
    const auto draw = [&] { return random_.uniform(); };
    std::vector<Genome> all;
    for (const Genome& genome : population_) all.push_back(refresh(genome, facts));
    for (size_t pair = 0; pair < kPopulation / 2; ++pair) {
      const size_t a = random_.below(kPopulation);
      const size_t b = (a + 1 + random_.below(kPopulation - 1)) % kPopulation;
      auto [one, two] = crossover(all[a], all[b], facts, kCrossover, draw);
      all.push_back(std::move(one));
      all.push_back(std::move(two));
    }
    for (size_t i = 0; i < kPopulation; ++i) all.push_back(mutate(all[i], facts, kMutation, draw));
    std::vector<std::pair<double, size_t>> order;
    for (size_t i = 0; i < all.size(); ++i) {
      all[i] = reorder(pad(all[i], facts), before);
      order.emplace_back(score(all[i], facts), i);
    }
    std::sort(order.begin(), order.end());
    population_.clear();
    for (size_t i = 0; i < kPopulation; ++i) population_.push_back(all[order[i].second]);
  }

  // Returns the GPUs of each job as parts of nodes.
  static std::map<int, Allocation> parts_of(const View& view, const Genome& genome) {
    std::map<int, Allocation> out;
    size_t slot = 0;
    for (size_t node = 0; node < view.machines->nodes.size(); ++node) {
      for (int i = 0; i < view.machines->nodes[node].gpus; ++i, ++slot) {
        if (genome[slot] == kFree) continue;
        auto& parts = out[genome[slot]].parts;
        if (parts.empty() || parts.back().node != static_cast<int>(node))
          parts.push_back({static_cast<int>(node), 0});
        ++parts.back().gpus;
      }
    }
    return out;
  }

  Decision deploy(const View& view, const Facts& facts, const Genome& before, const Genome& best) {
    std::map<int, Allocation> target = parts_of(view, best);
    bool may_move = true;
    for (const JobView& job : view.jobs) {
      const bool moves = !job.allocation.empty() && target[job.id] != job.allocation;
      const double since = epochs_of(job) - states_[job.id].placed_at;
      may_move &= !moves || since >= kUpdateEpochs;
    }
    Decision out;
    for (const JobView& job : view.jobs)
      out.allocations.push_back(may_move ? target[job.id] : job.allocation);
    deployed_ = may_move ? best : before;
    // Without the others, jobs still start whose GPUs are free.
    for (size_t i = 0; i < view.jobs.size() && !may_move; ++i) {
      const Allocation& wanted = target[view.jobs[i].id];
      bool is_free = true;
      for (size_t slot = 0; slot < best.size(); ++slot)
        is_free &= best[slot] != view.jobs[i].id || deployed_[slot] == kFree;
      if (!out.allocations[i].empty() || wanted.empty() || !is_free) continue;
      out.allocations[i] = wanted;
      for (size_t slot = 0; slot < best.size(); ++slot) {
        if (best[slot] == view.jobs[i].id) deployed_[slot] = best[slot];
      }
    }
    for (size_t i = 0; i < view.jobs.size() && may_move; ++i) {
      JobState& state = states_[view.jobs[i].id];
      if (!view.jobs[i].allocation.empty() || !out.allocations[i].empty()) continue;
      if (!facts.at(view.jobs[i].id).is_executed || before == best) continue;
      state.limit = std::max(1, state.limit / 2);  // it was left out once more
      state.stored = std::max(1, state.stored / 2);
    }
    return out;
  }

  uint64_t seed_;
  Random random_;
  BetaRegression predictor_;
  std::vector<ProgressRow> history_;
  std::map<int, JobState> states_;
  std::vector<Genome> population_;
  Genome deployed_;
};

}  // namespace
std::unique_ptr<Policy> make_ones(const PolicyOptions& options) {
  return std::make_unique<Ones>(options.seed);
}

}  // namespace tessera::share
