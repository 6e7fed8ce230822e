// Properties of all policies, and of the default one, on random small instances.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "tessera/orchestrate/policies/test_jobs.h"
#include "tessera/test/all_cases.h"

namespace tessera::share {
namespace {

Outcome run_policy(const Instance& instance, const std::string& name) {
  const auto policy = make_policy(name, {.seed = 3});
  EXPECT_TRUE(policy.has_value());
  const auto outcome = simulate_jobs(instance.jobs, instance.machines, **policy, instance.options);
  EXPECT_TRUE(outcome.has_value()) << (outcome ? "" : outcome.error().message);
  return outcome ? *outcome : Outcome();
}

TEST(Policies, EveryOneEndsAllJobsWithoutLosingWorkAndDecidesTheSameTwice) {
  for (const PolicyInfo& info : policies()) {
    for (uint64_t seed = 1; seed <= static_cast<uint64_t>(cases(2, 8)); ++seed) {
      const Instance instance = random_instance(seed, 7, 3, false);
      const Outcome outcome = run_policy(instance, info.name);
      ASSERT_EQ(outcome.jobs.size(), instance.jobs.size()) << info.name;
      for (size_t i = 0; i < outcome.jobs.size(); ++i) {
        const JobModel& model = *instance.jobs[i].model;
        const double fastest = model.seconds_left(
            {}, instance.machines.packed(instance.machines.gpus()), BatchRule::kKnown);
        // All GPUs from the submission on would not have been quicker, and no work is done twice:
        // on g GPUs a job does at most g units a second.
        ASSERT_GE(outcome.jobs[i].end_s, instance.jobs[i].submit_s + fastest) << info.name;
        ASSERT_GE(outcome.jobs[i].usage.gpu_seconds * (1 + 1e-9), model.total()) << info.name;
        ASSERT_LE(outcome.jobs[i].usage.gpu_seconds,
                  outcome.jobs[i].usage.held_s * instance.machines.gpus() * (1 + 1e-9));
      }
      ASSERT_EQ(outcome.changes, run_policy(instance, info.name).changes) << info.name;
    }
  }
}

TEST(Policies, AJobThatAsksForAllGpusIsNotStarved) {
  for (const PolicyInfo& info : policies()) {
    Instance instance = random_instance(4, 6, 2, false);
    instance.jobs.front().gpus = instance.machines.gpus();
    EXPECT_GT(run_policy(instance, info.name).jobs.front().end_s, 0) << info.name;
  }
}

TEST(DefaultPolicy, IsNeverWorseThanFifo) {
  const auto seeds = static_cast<uint64_t>(cases(300, 1000));
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    const Instance instance = random_instance(seed, 7, 3, false);
    const double ours = mean_jct(instance, run_policy(instance, "default"));
    ASSERT_LE(ours, mean_jct(instance, run_policy(instance, "fifo")) * (1 + 1e-9)) << seed;
  }
}

// Searches all ways to share the GPUs, where shares change when a job ends. Returns the least sum of
// completion times. Sizes are 0, 1, 2 and 4 GPUs; there are no pauses and no rounds.
double exact_sum(std::vector<double> left, const std::vector<double>& powers, int gpus, double now,
                 double best) {
  double bound = 0;
  size_t open = 0;
  for (size_t i = 0; i < left.size(); ++i) {
    if (left[i] <= 0) continue;
    ++open;
    bound += now + left[i] / std::pow(gpus, powers[i]);
  }
  if (open == 0) return 0;
  if (bound >= best) return best;
  std::vector<int> sizes(left.size());
  const std::function<void(size_t, int)> choose = [&](size_t i, int free) {
    if (i < left.size()) {
      for (const int size : {4, 2, 1, 0}) {
        if (size > free || (left[i] <= 0 && size > 0)) continue;
        sizes[i] = size;
        choose(i + 1, free - size);
      }
      return;
    }
    double step = kNever;
    for (size_t j = 0; j < left.size(); ++j) {
      if (sizes[j] > 0) step = std::min(step, left[j] / std::pow(sizes[j], powers[j]));
    }
    if (step == kNever) return;
    std::vector<double> next = left;
    double ended = 0;
    for (size_t j = 0; j < left.size(); ++j) {
      if (sizes[j] == 0) continue;
      next[j] -= step * std::pow(sizes[j], powers[j]);
      if (next[j] > 1e-9) continue;
      next[j] = 0;
      ended += now + step;
    }
    const double rest = exact_sum(std::move(next), powers, gpus, now + step, best - ended);
    best = std::min(best, ended + rest);
  };
  choose(0, gpus);
  return best;
}

TEST(DefaultPolicy, IsNearTheExactOptimumOfSmallInstances) {
  const auto seeds = static_cast<uint64_t>(cases(25, 60));
  double ours = 0, exact = 0;
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    Random random(seed, 5);
    Instance instance = random_instance(seed, 5, 1, true);
    std::vector<double> left, powers;
    for (JobSpec& job : instance.jobs) {
      powers.push_back(0.5 + 0.5 * random.uniform());
      left.push_back(job.model->total());
      job.model = rated_job(std::make_shared<PowerSpeeds>(powers.back(), 4), left.back());
    }
    instance.options.round_s = 0.5;
    instance.options.switching.seconds = 0;
    ours += mean_jct(instance, run_policy(instance, "default"));
    exact += exact_sum(left, powers, 4, 0, 1e18) / static_cast<double>(left.size());
  }
  EXPECT_LE(ours, 1.05 * exact);
  EXPECT_GE(ours, exact * (1 - 1e-6));
}

TEST(DefaultPolicy, KeepsAGuaranteedMinimumAndADeadline) {
  Instance instance = random_instance(9, 6, 2, true);
  JobSpec& job = instance.jobs.back();
  job.guaranteed_gpus = 4;
  job.deadline_s = 60 + job.model->seconds_left({}, instance.machines.packed(4), BatchRule::kKnown);
  const Outcome outcome = run_policy(instance, "default");
  EXPECT_LE(outcome.jobs.back().end_s, job.deadline_s);
}

TEST(Policies, AnUnknownNameIsAnsweredWithTheNearest) {
  const auto found = make_policy("tiresia", {});
  ASSERT_FALSE(found.has_value());
  EXPECT_TRUE(found.error().message.ends_with("found 'tiresia', did you mean 'tiresias'?"));
}

}  // namespace
}  // namespace tessera::share
