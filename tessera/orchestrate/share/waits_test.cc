// Waits of jobs, beside counters of each job for itself.
#include "tessera/orchestrate/share/waits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "tessera/orchestrate/share/random.h"

namespace tessera::share {
namespace {

constexpr int kJobs = 12;

struct Naive {
  bool is_waiting = false;
  WaitKind now = WaitKind::kNone;
  std::array<double, 4> seconds{};
  std::array<double, 4> first_s{-1, -1, -1, -1};  // when each kind first held
};

TEST(Waits, AreThoseOfCountersOfEachJob) {
  const Machines machines = *parse_machines("4x4");
  Random random(3);
  for (int instance = 0; instance < 20; ++instance) {
    std::vector<JobSpec> jobs(kJobs);
    for (JobSpec& job : jobs) job.gpus = 1 << random.below(4);
    Waits waits(jobs, machines);
    std::vector<Naive> naive(kJobs);
    double now_s = 0;
    for (int round = 0; round < 200; ++round) {
      const int job = static_cast<int>(random.below(kJobs));
      Naive& own = naive[static_cast<size_t>(job)];
      own.is_waiting = random.below(2) == 0;
      waits.set(job, own.is_waiting);
      const WaitFacts facts{
          static_cast<int>(random.below(9)), static_cast<int>(random.below(5)), {}};
      waits.judge(
          facts, [] { return std::vector<WaitFacts::Release>(); }, now_s);
      const double seconds = static_cast<double>(60 * (1 + random.below(3)));
      waits.pass(seconds);
      size_t waiting = 0;
      for (size_t i = 0; i < kJobs; ++i) {
        if (!naive[i].is_waiting) continue;
        ++waiting;
        naive[i].now = wait_kind(jobs[i].gpus, machines, facts);
        const auto kind = static_cast<size_t>(naive[i].now);
        naive[i].seconds[kind] += seconds;
        if (naive[i].first_s[kind] < 0) naive[i].first_s[kind] = now_s;
      }
      now_s += seconds;
      ASSERT_EQ(waits.waiting(), waiting);
      for (size_t i = 0; i < kJobs; ++i) {
        const int id = static_cast<int>(i);
        double sum = 0;
        for (const double part : naive[i].seconds) sum += part;
        ASSERT_EQ(waits.seconds(id), sum);
        const auto kind = static_cast<size_t>(naive[i].now);
        ASSERT_EQ(waits.now(id).kind, naive[i].now);
        if (kind > 0) {
          ASSERT_EQ(waits.now(id).at_s, naive[i].first_s[kind]);
        }
        if (sum == 0) continue;
        ASSERT_EQ(naive[i].seconds[static_cast<size_t>(waits.longest(id).kind)],
                  *std::max_element(naive[i].seconds.begin(), naive[i].seconds.end()));
      }
    }
  }
}

}  // namespace
}  // namespace tessera::share
