// Gavel's heterogeneity-aware max-min fairness. X[job, type] is the share of time for which a job runs
// on a type of GPU:
//   maximise  min over jobs of  gpus / weight * sum over types of T[job, type] X[job, type] / T[job]
//   X in [0, 1],  sum over types of X <= 1 for each job,  sum over jobs of X gpus <= GPUs of each type,
// where T[job] is the speed with an equal share of each type. In each round the pairs of job and type
// with the greatest X, over the share of time that the job has had on the type, get their GPUs. A round
// takes at least six minutes; until its end running jobs keep their GPUs, and waiting ones may start.
//
// The program has many optima. Ours is the vertex that the simplex method of linear_program.h reaches,
// so single rounds may differ from those of other solvers.
#include <algorithm>
#include <map>

#include "tessera/orchestrate/policies/makers.h"
#include "tessera/orchestrate/share/linear_program.h"
#include "tessera/orchestrate/share/placement.h"

namespace tessera::share {
namespace {

constexpr double kRound_s = 360;

class Gavel : public Policy {
 public:
  Decision decide(const View& view) override {
    const size_t types = view.machines->types.size();
    count_time(view);
    const std::vector<int> jobs = numbers(view);
    if (jobs != solved_for_) {
      shares_ = solve_shares(view);
      solved_for_ = jobs;
    }
    const bool is_round = view.now_s - round_s_ >= kRound_s - 1e-6;
    if (is_round) round_s_ = view.now_s;
    struct Pair {
      double priority;
      size_t job;
      int type;
    };
    std::vector<Pair> order;
    for (size_t i = 0; i < view.jobs.size(); ++i) {
      for (size_t type = 0; type < types; ++type) {
        const double share = shares_[i][type];
        const Allocation& now = view.jobs[i].allocation;
        if (!is_round && !now.empty()) {
          if (view.machines->shape(now).type == static_cast<int>(type))
            order.push_back({kNever, i, static_cast<int>(type)});
          continue;
        }
        if (share <= 1e-9) continue;
        const auto& had = had_s_[view.jobs[i].id];
        const double all = std::max(seen_s_[view.jobs[i].id], view.round_s);
        const double received = had.empty() ? 0 : had[type] / all;
        order.push_back({received > 0 ? share / received : 1e9 * share, i, static_cast<int>(type)});
      }
    }
    std::stable_sort(order.begin(), order.end(),
                     [](const Pair& a, const Pair& b) { return a.priority > b.priority; });
    std::vector<int> type_of(view.jobs.size(), -1), left;
    for (size_t type = 0; type < types; ++type)
      left.push_back(view.machines->gpus(static_cast<int>(type)));
    for (const Pair& pair : order) {
      int& room = left[static_cast<size_t>(pair.type)];
      if (type_of[pair.job] >= 0 || view.jobs[pair.job].spec->gpus > room) continue;
      room -= view.jobs[pair.job].spec->gpus;
      type_of[pair.job] = pair.type;
    }
    return place(view, type_of);
  }

 private:
  static std::vector<int> numbers(const View& view) {
    std::vector<int> out;
    for (const JobView& job : view.jobs) out.push_back(job.id);
    return out;
  }

  // Adds the time since the last round to the type that each job had.
  void count_time(const View& view) {
    for (const JobView& job : view.jobs) {
      auto& had = had_s_[job.id];
      had.resize(view.machines->types.size());
      if (had_before_.contains(job.id)) seen_s_[job.id] += view.now_s - last_s_;
      if (!job.allocation.empty())
        had[static_cast<size_t>(view.machines->shape(job.allocation).type)] += view.now_s - last_s_;
      had_before_[job.id] = true;
    }
    last_s_ = view.now_s;
  }

  std::vector<std::vector<double>> solve_shares(const View& view) const {
    const size_t types = view.machines->types.size(), jobs = view.jobs.size();
    const size_t level = jobs * types;  // the column of the least share
    LinearProgram program;
    program.costs.assign(level + 1, 0);
    program.costs[level] = -1;
    std::vector<LinearRow> of_type(types, {std::vector<double>(level + 1), RowSense::kAtMost, 0});
    for (size_t i = 0; i < jobs; ++i) {
      const JobView& job = view.jobs[i];
      LinearRow once{std::vector<double>(level + 1), RowSense::kAtMost, 1};
      LinearRow fair{std::vector<double>(level + 1), RowSense::kAtLeast, 0};
      std::vector<double> speeds;
      double equal = 0;
      for (size_t type = 0; type < types; ++type) {
        const Shape shape = view.machines->packed(job.spec->gpus, static_cast<int>(type));
        speeds.push_back(job.model().rate(*job.run, shape, BatchRule::kAsked));
        equal += speeds[type] * view.machines->gpus(static_cast<int>(type)) / view.machines->gpus();
      }
      for (size_t type = 0; type < types; ++type) {
        once.factors[i * types + type] = 1;
        of_type[type].factors[i * types + type] = job.spec->gpus;
        fair.factors[i * types + type] =
            job.spec->gpus / job.spec->weight * speeds[type] / std::max(equal, 1e-12);
      }
      fair.factors[level] = -1;
      program.rows.push_back(std::move(once));
      program.rows.push_back(std::move(fair));
    }
    for (size_t type = 0; type < types; ++type) {
      of_type[type].value = view.machines->gpus(static_cast<int>(type));
      program.rows.push_back(std::move(of_type[type]));
    }
    const LinearAnswer answer = solve(program);
    std::vector<std::vector<double>> out(jobs, std::vector<double>(types));
    for (size_t i = 0; i < level && answer.found; ++i) out[i / types][i % types] = answer.values[i];
    return out;
  }

  static Decision place(const View& view, const std::vector<int>& type_of) {
    Decision out;
    out.allocations.resize(view.jobs.size());
    FreeGpus free = all_free(*view.machines);
    for (size_t i = 0; i < view.jobs.size(); ++i) {
      const Allocation& now = view.jobs[i].allocation;
      if (now.empty() || view.machines->shape(now).type != type_of[i]) continue;
      out.allocations[i] = now;
      remove(free, now);
    }
    for (size_t i = 0; i < view.jobs.size(); ++i) {
      if (type_of[i] < 0 || !out.allocations[i].empty()) continue;
      out.allocations[i] = take_packed(*view.machines, free, view.jobs[i].spec->gpus, type_of[i]);
    }
    return out;
  }

  std::map<int, std::vector<double>> had_s_;  // by job, then type
  std::map<int, double> seen_s_;              // how long the job has been there
  std::map<int, bool> had_before_;
  std::vector<std::vector<double>> shares_;
  std::vector<int> solved_for_;
  double last_s_ = 0, round_s_ = -kRound_s;
};

}  // namespace

std::unique_ptr<Policy> make_gavel(const PolicyOptions&) { return std::make_unique<Gavel>(); }

}  // namespace tessera::share
