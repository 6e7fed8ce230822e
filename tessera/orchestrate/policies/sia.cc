// Sia: an integer program over configurations. A configuration is a type of GPU and a number of them,
// within a node or whole nodes. A job's utility of one is its goodput there, over that at its least
// configuration, times what a restart costs unless it has the configuration already; raised to -1/2,
// so that small is good, rounded to two decimals and at most 3,000.
//   minimise  sum of U x + 1.1 (jobs - jobs with GPUs),  one configuration a job, GPUs of each type.
// On machines of one type the program is solved exactly, by dynamic programming over the GPUs. With
// several types its linear relaxation is solved, in which at most as many jobs as there are types are
// divided; these take their best configuration that still fits.
#include <algorithm>
#include <cmath>

#include "tessera/orchestrate/policies/makers.h"
#include "tessera/orchestrate/share/linear_program.h"
#include "tessera/orchestrate/share/packing.h"

namespace tessera::share {
namespace {

constexpr double kPower = -0.5, kMostUtility = 3000, kUnallocated = 1.1;

struct Choice {
  GpuOption size;
  double utility = 0;
};
using Choices = std::vector<std::vector<Choice>>;  // by job

// Returns 1, 2, 4, ... within a node and whole nodes, of each type.
std::vector<GpuOption> configurations(const Machines& machines) {
  std::vector<GpuOption> out;
  for (int type = 0; type < static_cast<int>(machines.types.size()); ++type) {
    const int all = machines.gpus(type);
    int node = 1;
    for (const Machines::Node& own : machines.nodes)
      node = own.type == type ? std::max(node, own.gpus) : node;
    for (int gpus = 1; gpus < node; gpus *= 2) out.push_back({type, gpus});
    for (int gpus = node; gpus <= all; gpus += node) out.push_back({type, gpus});
  }
  return out;
}

// Returns the choice of each job, -1 for none, by dynamic programming over the GPUs of one type.
std::vector<int> exact(const Choices& choices, int gpus) {
  const auto width = static_cast<size_t>(gpus) + 1;
  std::vector<double> best(width, 0);
  std::vector<std::vector<int16_t>> taken;
  for (const auto& own : choices) {
    std::vector<double> next(width);
    std::vector<int16_t> how(width, -1);
    for (size_t g = 0; g < width; ++g) {
      next[g] = best[g] + kUnallocated;
      for (size_t c = 0; c < own.size(); ++c) {
        const auto size = static_cast<size_t>(own[c].size.gpus);
        if (size > g || best[g - size] + own[c].utility >= next[g] - 1e-12) continue;
        next[g] = best[g - size] + own[c].utility;
        how[g] = static_cast<int16_t>(c);
      }
    }
    best = std::move(next);
    taken.push_back(std::move(how));
  }
  std::vector<int> out(choices.size(), -1);
  size_t left = width - 1;
  for (size_t j = choices.size(); j-- > 0;) {
    out[j] = taken[j][left];
    if (out[j] >= 0) left -= static_cast<size_t>(choices[j][static_cast<size_t>(out[j])].size.gpus);
  }
  return out;
}

std::vector<int> relaxed(const Choices& choices, std::vector<int> left) {
  LinearProgram program;
  std::vector<std::pair<size_t, size_t>> columns;
  for (size_t j = 0; j < choices.size(); ++j) {
    for (size_t c = 0; c < choices[j].size(); ++c) {
      columns.emplace_back(j, c);
      program.costs.push_back(choices[j][c].utility - kUnallocated);
    }
  }
  const size_t jobs = choices.size();
  program.rows.assign(jobs + left.size(),
                      {std::vector<double>(columns.size()), RowSense::kAtMost, 1});
  for (size_t i = 0; i < columns.size(); ++i) {
    const auto& [j, c] = columns[i];
    const GpuOption& size = choices[j][c].size;
    program.rows[j].factors[i] = 1;
    program.rows[jobs + static_cast<size_t>(size.type)].factors[i] = size.gpus;
  }
  for (size_t type = 0; type < left.size(); ++type) program.rows[jobs + type].value = left[type];
  const LinearAnswer answer = solve(program);
  std::vector<int> out(jobs, -1);
  for (size_t i = 0; i < columns.size() && answer.found; ++i) {
    if (answer.values[i] < 1 - 1e-6) continue;
    const auto& [j, c] = columns[i];
    out[j] = static_cast<int>(c);
    left[static_cast<size_t>(choices[j][c].size.type)] -= choices[j][c].size.gpus;
  }
  for (size_t j = 0; j < jobs; ++j) {
    if (out[j] >= 0) continue;
    for (size_t c = 0; c < choices[j].size(); ++c) {
      const Choice& choice = choices[j][c];
      const bool fits = choice.size.gpus <= left[static_cast<size_t>(choice.size.type)];
      const bool is_better =
          choice.utility < kUnallocated &&
          (out[j] < 0 || choice.utility < choices[j][static_cast<size_t>(out[j])].utility);
      if (fits && is_better) out[j] = static_cast<int>(c);
    }
    if (out[j] < 0) continue;
    const GpuOption& size = choices[j][static_cast<size_t>(out[j])].size;
    left[static_cast<size_t>(size.type)] -= size.gpus;
  }
  return out;
}

class Sia : public Policy {
 public:
  BatchRule batch_rule() const override { return BatchRule::kFitted; }

  Decision decide(const View& view) override {
    const std::vector<GpuOption> all = configurations(*view.machines);
    Choices choices;
    for (const JobView& job : view.jobs) choices.push_back(choices_of(view, all, job));
    std::vector<int> left;
    for (size_t type = 0; type < view.machines->types.size(); ++type)
      left.push_back(view.machines->gpus(static_cast<int>(type)));
    const std::vector<int> chosen =
        left.size() == 1 ? exact(choices, left[0]) : relaxed(choices, left);
    std::vector<GpuOption> sizes;
    for (size_t j = 0; j < choices.size(); ++j) {
      sizes.push_back(chosen[j] < 0 ? GpuOption{}
                                    : choices[j][static_cast<size_t>(chosen[j])].size);
    }
    return {place_packed(view, sizes)};
  }

 private:
  std::vector<Choice> choices_of(const View& view, const std::vector<GpuOption>& all,
                                 const JobView& job) const {
    const JobModel& model = job.model();
    const int most = std::min(std::max({2 * job.run->profile.most_gpus, 1, model.least_gpus()}),
                              model.most_gpus(batch_rule()));
    const int type = job.allocation.empty() ? -1 : view.machines->shape(job.allocation).type;
    std::vector<GpuOption> sizes;
    for (const GpuOption& size : all) {
      if (size.gpus <= most) sizes.push_back(size);
    }
    // A job of one size, between the configurations, has that size as another one.
    if (model.least_gpus() == model.most_gpus(batch_rule())) {
      sizes.clear();
      for (int own = 0; own < static_cast<int>(view.machines->types.size()); ++own) {
        if (model.least_gpus() <= view.machines->gpus(own))
          sizes.push_back({own, model.least_gpus()});
      }
    }
    std::vector<Choice> out;
    double least = 0;
    for (const GpuOption& size : sizes) {
      const double rate =
          model.predicted_rate(*job.run, view.machines->packed(size.gpus, size.type));
      if (rate <= 0) continue;
      out.push_back({size, rate});
      least = least == 0 ? rate : std::min(least, rate);
    }
    const double age = view.now_s - job.spec->submit_s, pause = std::max(view.switch_s, 1.0);
    const double restart = std::max(age - job.switches * pause, 0.0) / (age + pause);
    for (Choice& choice : out) {
      const bool is_same = choice.size.type == type && choice.size.gpus == job.gpus();
      const double goodput = choice.utility / least * (is_same ? 1 : std::max(restart, 1e-8));
      choice.utility = std::min(std::round(100 * std::pow(goodput, kPower)) / 100, kMostUtility);
      // A job that has nothing yet must not be dearer with GPUs than without.
      if (job.allocation.empty()) choice.utility = std::min(choice.utility, 1.0);
    }
    return out;
  }
};

}  // namespace

std::unique_ptr<Policy> make_sia(const PolicyOptions&) { return std::make_unique<Sia>(); }

}  // namespace tessera::share
