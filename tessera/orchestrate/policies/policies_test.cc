// Properties of all policies, and of the default one, on random small instances.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>

#include "tessera/orchestrate/policies/test_jobs.h"
#include "tessera/orchestrate/share/metrics.h"
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

// Speeds on two types: the second is `factor` times as fast.
class TypedSpeeds : public PowerSpeeds {
 public:
  TypedSpeeds(double power, double factor) : PowerSpeeds(power, 2), factor_(factor) {}
  double steps_per_s(const Shape& shape, BatchRule rule) const override {
    return PowerSpeeds::steps_per_s(shape, rule) * (shape.type == 1 ? factor_ : 1);
  }

 private:
  double factor_;
};

struct Bill {
  int missed = 0;
  double usd = 0;
};
constexpr std::array<double, 2> kPrices = {1, 3};  // USD an hour

Bill bill_of(const Instance& instance, const Outcome& outcome) {
  const Summary summary = summarize(instance.jobs, instance.machines, outcome, BatchRule::kKnown,
                                    {kPrices[0], kPrices[1]});
  return {static_cast<int>(summary.missed_deadlines), summary.cost_usd};
}

// Searches all ways to give each job an option for good and to start the jobs in some order, each as
// soon as its GPUs are free. Returns the least cost of those with the fewest missed deadlines.
Bill least_bill(const Instance& instance) {
  const size_t count = instance.jobs.size();
  std::vector<size_t> order(count);
  for (size_t i = 0; i < count; ++i) order[i] = i;
  Bill best{static_cast<int>(count) + 1, 0};
  do {
    for (size_t code = 0; code < size_t{1} << (2 * count); ++code) {
      std::array<std::array<double, 2>, 2> free_s{};  // when each GPU of each type is free
      Bill bill;
      for (const size_t i : order) {
        const size_t type = code >> (2 * i) & 1, gpus = 1 + (code >> (2 * i + 1) & 1);
        const Shape shape{{static_cast<int>(gpus)}, static_cast<int>(type)};
        const double seconds = instance.jobs[i].model->seconds_left({}, shape, BatchRule::kKnown);
        std::sort(free_s[type].begin(), free_s[type].end());
        const double end_s = free_s[type][gpus - 1] + seconds;
        for (size_t g = 0; g < gpus; ++g) free_s[type][g] = end_s;
        bill.usd += kPrices[type] / 3600 * static_cast<double>(gpus) * seconds;
        bill.missed +=
            end_s + 0.5 > instance.jobs[i].deadline_s ? 1 : 0;  // it is seen after a round
      }
      if (bill.missed < best.missed || (bill.missed == best.missed && bill.usd < best.usd))
        best = bill;
    }
  } while (std::next_permutation(order.begin(), order.end()));
  return best;
}

// The policy may stop and resize jobs, which the search does not try, so it can be the cheaper one.
TEST(DefaultPolicy, KeepsDeadlinesAtNearlyTheLeastCost) {
  const auto seeds = static_cast<uint64_t>(cases(60, 300));
  Bill ours, exact, by_time;
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    Random random(seed, 77);
    Instance instance;
    instance.machines = *parse_machines("slow:1x2,fast:1x2");
    instance.options.round_s = 0.5;
    instance.options.switching.seconds = 0;
    const size_t count = 2 + random.below(3);
    for (size_t i = 0; i < count; ++i) {
      JobSpec job;
      job.name = fmt::format("job-{}", i);
      const double power = 0.5 + 0.5 * random.uniform(), factor = 1.5 + 2.5 * random.uniform();
      const double steps = 300 + 1200 * random.uniform();
      job.model = rated_job(std::make_shared<TypedSpeeds>(power, factor), steps);
      const double least = steps / factor / std::pow(2, power);
      job.deadline_s = least * (1.1 + 3 * random.uniform());
      instance.jobs.push_back(std::move(job));
    }
    const auto run = [&](Objective objective) {
      const auto policy =
          make_policy("default", {.objective = objective, .prices = {kPrices[0], kPrices[1]}});
      const auto outcome =
          simulate_jobs(instance.jobs, instance.machines, **policy, instance.options);
      return bill_of(instance, *outcome);
    };
    const Bill own = run(Objective::kCost), time = run(Objective::kTime);
    const Bill least = least_bill(instance);
    ours = {ours.missed + own.missed, ours.usd + own.usd};
    by_time = {by_time.missed + time.missed, by_time.usd + time.usd};
    exact = {exact.missed + least.missed, exact.usd + least.usd};
  }
  RecordProperty("missed", fmt::format("{} {} {}", ours.missed, exact.missed, by_time.missed));
  RecordProperty("usd", fmt::format("{:.4f} {:.4f} {:.4f}", ours.usd, exact.usd, by_time.usd));
  EXPECT_LE(ours.missed, exact.missed + static_cast<int>(seeds) / 20);
  EXPECT_LE(ours.usd, 1.05 * exact.usd);
}

TEST(Policies, AnUnknownNameIsAnsweredWithTheNearest) {
  const auto found = make_policy("tiresia", {});
  ASSERT_FALSE(found.has_value());
  EXPECT_TRUE(found.error().message.ends_with("found 'tiresia', did you mean 'tiresias'?"));
}

}  // namespace
}  // namespace tessera::share
