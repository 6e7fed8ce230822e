// Ours. Rules of sharing are compared by futures (futures.h): for each rule the jobs are played to
// their ends, with jobs to come that are drawn from those seen so far, and the first step of the rule
// with the least sum of completion times is taken. Rules: greedy by several exponents, no change of
// running jobs, and order of submission.
//
// Times come from what is known of each job by number of GPUs (measured rows, or plans), at the best
// batch and the best plan of each. The pause of a change is part of every time. Jobs with a guaranteed
// minimum or a deadline are served first. Decisions are made when jobs come or end, and at gates of
// time, not of epochs, so that jobs with long epochs adapt, too.
//
// With Objective::kCost futures are compared by missed deadlines and then by cost, and the rules choose
// sizes and types by price.
#include <algorithm>
#include <cmath>

#include "tessera/orchestrate/policies/makers.h"
#include "tessera/orchestrate/share/futures.h"
#include "tessera/orchestrate/share/packing.h"
#include "tessera/orchestrate/share/random.h"

namespace tessera::share {
namespace {

constexpr double kGate_s = 600;    // a decision at least so often
constexpr int kSamples = 2;        // futures; the first has no further jobs
constexpr size_t kLeastSeen = 10;  // jobs before the first are drawn: gaps of a few say little
constexpr int kComing = 12;        // jobs to come in each further future
constexpr double kWork = 8e5;      // steps times options times jobs that a decision may take

// Returns the numbers of GPUs that are tried: 1, 2, 4, ... within a node, then whole nodes, in steps
// that grow by a quarter.
std::vector<GpuOption> options_of(const Machines& machines) {
  std::vector<GpuOption> out;
  for (int type = 0; type < static_cast<int>(machines.types.size()); ++type) {
    int node = 0;
    for (const Machines::Node& own : machines.nodes)
      node = own.type == type ? std::max(node, own.gpus) : node;
    for (int gpus = 1; gpus < node; gpus *= 2) out.push_back({type, gpus});
    for (int nodes = 1; nodes * node <= machines.gpus(type);
         nodes = std::max(nodes + 1, nodes * 5 / 4))
      out.push_back({type, nodes * node});
  }
  return out;
}

class Default : public Policy {
 public:
  explicit Default(const PolicyOptions& options) : seed_(options.seed), prices_(options.prices) {
    if (options.objective == Objective::kTime) prices_.clear();
    for (double& price : prices_) price /= 3600;
  }
  BatchRule batch_rule() const override { return BatchRule::kKnown; }
  bool changes_live() const override { return true; }
  double wakes_after(const View& view) const override {
    return std::max(view.round_s, std::ceil(kGate_s / view.round_s) * view.round_s);
  }

  Decision decide(const View& view) override {
    const Futures futures = futures_of(view);
    std::vector<FluidJob> jobs;
    for (const JobView& job : view.jobs) jobs.push_back(fluid_job(view, futures, job));
    remember(view);
    const std::vector<std::vector<FluidJob>> samples = draw(view, futures, jobs);
    const int most_steps = static_cast<int>(
        std::clamp(kWork / static_cast<double>((jobs.size() + kComing) * futures.options().size()),
                   4.0, 400.0));
    std::vector<int> best;
    double least = kNever;
    for (const ShareRule& rule : rules()) {
      std::vector<int> first = futures.share(jobs, rule, true);
      double sum = 0;
      for (const auto& sample : samples) {
        std::vector<int> padded = first;
        padded.resize(sample.size(), -1);
        sum += futures.play(sample, rule, std::move(padded), most_steps);
      }
      if (sum >= least * (1 - 1e-9)) continue;
      least = sum;
      best = std::move(first);
    }
    std::vector<GpuOption> sizes;
    for (const int option : best)
      sizes.push_back(option < 0 ? GpuOption{} : futures.options()[static_cast<size_t>(option)]);
    return {place_packed(view, sizes)};
  }

 private:
  const std::vector<ShareRule>& rules() const {
    using Kind = ShareRule::Kind;
    static const std::vector<ShareRule> kRules = {
        {Kind::kKeep, 1},     {Kind::kInOrder, 1},   {Kind::kShortest, 1}, {Kind::kGreedy, 0.25},
        {Kind::kGreedy, 0.5}, {Kind::kGreedy, 0.75}, {Kind::kGreedy, 1},   {Kind::kGreedy, 1.25},
        {Kind::kGreedy, 1.5}, {Kind::kGreedy, 2.5}};
    static const std::vector<ShareRule> kByPrice = [] {
      std::vector<ShareRule> out = {{Kind::kCheapest, 1}, {Kind::kPatient, 1}};
      out.insert(out.end(), kRules.begin(), kRules.end());
      return out;
    }();
    if (!prices_.empty()) return kByPrice;
    return kRules;
  }

  // Options of the machines, and the sizes that jobs have or ask for beside them.
  Futures futures_of(const View& view) const {
    std::vector<GpuOption> options = options_of(*view.machines);
    const auto add = [&](GpuOption wanted) {
      const bool is_there = std::any_of(options.begin(), options.end(), [&](const auto& option) {
        return option.type == wanted.type && option.gpus == wanted.gpus;
      });
      if (!is_there && wanted.gpus <= view.machines->gpus(wanted.type)) options.push_back(wanted);
    };
    for (const JobView& job : view.jobs) {
      if (!job.allocation.empty()) add({view.machines->shape(job.allocation).type, job.gpus()});
      for (int type = 0; type < static_cast<int>(view.machines->types.size()); ++type)
        add({type, job.spec->gpus});
    }
    std::vector<int> budget;
    for (size_t type = 0; type < view.machines->types.size(); ++type)
      budget.push_back(view.machines->gpus(static_cast<int>(type)));
    return {std::move(options), std::move(budget), view.switch_s, prices_};
  }

  // Returns the job's times from a point of its run, as if it had no GPUs.
  FluidJob times_of(const View& view, const Futures& futures, const JobSpec& spec,
                    const JobRun& run) const {
    FluidJob out;
    out.deadline_s = spec.deadline_s - view.now_s;
    out.weight = spec.weight;
    out.guaranteed = spec.guaranteed_gpus;
    out.least_gpu_s = kNever;
    for (size_t k = 0; k < futures.options().size(); ++k) {
      const GpuOption& option = futures.options()[k];
      const double seconds = spec.model->seconds_left(
          run, view.machines->packed(option.gpus, option.type), batch_rule());
      out.seconds.push_back(seconds);
      out.least_gpu_s = std::min(out.least_gpu_s, seconds * option.gpus);
      const bool is_asked = option.gpus == spec.gpus && seconds < kNever;
      if (is_asked && (out.asked < 0 || seconds < out.seconds[static_cast<size_t>(out.asked)]))
        out.asked = static_cast<int>(k);
    }
    return out;
  }

  FluidJob fluid_job(const View& view, const Futures& futures, const JobView& job) const {
    FluidJob out = times_of(view, futures, *job.spec, *job.run);
    out.arrives_s = job.spec->submit_s - view.now_s;
    out.pauses = pauses_of(view, futures, job);
    if (job.allocation.empty()) return out;
    const int type = view.machines->shape(job.allocation).type;
    for (size_t k = 0; k < futures.options().size(); ++k) {
      const GpuOption& option = futures.options()[k];
      if (option.type == type && option.gpus == job.gpus()) out.current = static_cast<int>(k);
    }
    return out;
  }

  // Returns how long the job pauses for each option, by the bytes of its state; empty where the
  // cluster or the job does not say. Later changes of a future take the pauses from where the job is
  // now.
  std::vector<double> pauses_of(const View& view, const Futures& futures,
                                const JobView& job) const {
    if (!view.links.is_known()) return {};
    const SwitchCost cost{.seconds = view.switch_s, .links = view.links};
    const Shape now = view.machines->shape(job.allocation);
    const bool is_running = !job.allocation.empty();
    const StateBytes before = is_running ? job.spec->state_bytes(now, batch_rule()) : StateBytes();
    std::vector<double> out;
    for (const GpuOption& option : futures.options()) {
      const Shape to = view.machines->packed(option.gpus, option.type);
      out.push_back(cost.of({.nodes = nodes_of_change(now, to),
                             .before = before,
                             .after = job.spec->state_bytes(to, batch_rule()),
                             .has_state = job.started_s >= 0,
                             .was_running = is_running,
                             .is_live = changes_live() && now.type == to.type})
                        .seconds);
    }
    return out;
  }

  // Keeps the jobs that came, for those to come.
  void remember(const View& view) {
    for (const JobView& job : view.jobs) {
      if (job.id < next_) continue;
      next_ = job.id + 1;
      seen_.push_back(*job.spec);
    }
  }

  std::vector<std::vector<FluidJob>> draw(const View& view, const Futures& futures,
                                          const std::vector<FluidJob>& jobs) const {
    std::vector<std::vector<FluidJob>> out{jobs};
    if (view.arrived < kLeastSeen || jobs.empty()) return out;
    const JobRun start;
    const double interval = view.now_s / static_cast<double>(view.arrived);
    for (int sample = 1; sample < kSamples; ++sample) {
      Random random(seed_ + static_cast<uint64_t>(sample), view.arrived);
      auto& own = out.emplace_back(jobs);
      double at = 0;
      for (int i = 0; i < kComing; ++i) {
        at += random.exponential(interval);
        FluidJob job = times_of(view, futures, seen_[random.below(seen_.size())], start);
        job.arrives_s = at;
        job.deadline_s = kNever;
        own.push_back(std::move(job));
      }
    }
    return out;
  }

  uint64_t seed_;
  std::vector<double> prices_;  // USD a second of a GPU, by type; empty: of Objective::kTime
  int next_ = 0;
  std::vector<JobSpec> seen_;
};

}  // namespace

std::unique_ptr<Policy> make_default(const PolicyOptions& options) {
  return std::make_unique<Default>(options);
}

}  // namespace tessera::share
