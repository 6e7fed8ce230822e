#include "every_plan.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <numeric>

#include "compare.h"
#include "matrix_cases.h"
#include "tessera/base/text.h"
#include "tessera/compile/compile.h"
#include "tessera/simulate/simulate.h"
#include "tessera/test/source_dir.h"

namespace tessera {
namespace {

struct Circumstances {
  std::string cluster, style, precision;
  int64_t times;
};

// The periods have no common divisor, so neighbours in the matrix differ in all circumstances.
Circumstances circumstances(size_t index) {
  constexpr std::array kClusters{"dgx-a100", "h100-nvl", "p3.16xlarge", "gb200-nvl72",
                                 "mi355x",   "tpu-v4",   "geo",         "rtx4090",
                                 "gh200",    "dgx-b200", "l4"};
  constexpr std::array kStyles{"tessera", "eager", "compiled",      "megatron-2022",
                               "nemo",    "fsdp",  "deepspeed-2022"};
  constexpr std::array kPrecisions{"float32", "bfloat16"};
  constexpr std::array<int64_t, 3> kTimes{1, 16, 96};
  return {kClusters[index % kClusters.size()], kStyles[index % kStyles.size()],
          kPrecisions[index % kPrecisions.size()], kTimes[index % kTimes.size()]};
}

void expect_played(const MatrixCase& one, const Circumstances& how) {
  const std::string plan =
      one.plan.ends_with(".toml") ? std::string(TESSERA_SOURCE_DIR) + "/" + one.plan : one.plan;
  const auto planned = compile({widened(one.spec, how.times), plan, one.batch, how.precision});
  ASSERT_TRUE(planned.has_value()) << planned.error().message;
  const int64_t ranks = planned->plan().ranks;
  const Cluster cluster = load_cluster(fmt::format("{}:{}", how.cluster, ranks)).value();
  SimulateOptions options;
  options.style = parse_style(how.style).value();
  const auto folded = simulate(*planned->lowering, cluster, options);
  ASSERT_TRUE(folded.has_value()) << folded.error().message;
  EXPECT_GT(folded->step_time_s, 0);
  for (const RankResult& role : folded->roles) {
    EXPECT_NEAR(std::accumulate(role.spent_s.begin(), role.spent_s.end(), 0.0), folded->step_time_s,
                1e-9 * folded->step_time_s);
  }
  options.fold = false;
  const auto unfolded = simulate(*planned->lowering, cluster, options);
  ASSERT_TRUE(unfolded.has_value()) << unfolded.error().message;
  expect_equal(*folded, *unfolded);
}

}  // namespace

void expect_every_plan_is_played(bool only_quick) {
  const auto cases = load_plans(TESSERA_SOURCE_DIR);
  ASSERT_TRUE(cases.has_value()) << cases.error().message;
  for (size_t i = 0; i < cases->size(); ++i) {
    const MatrixCase& one = (*cases)[i];
    if (only_quick && !one.quick) continue;
    const Circumstances how = circumstances(i);
    SCOPED_TRACE(fmt::format("{} under {}, batch {}: on {}, style {}, {}, {} times as wide",
                             one.spec, one.plan, one.batch, how.cluster, how.style, how.precision,
                             how.times));
    expect_played(one, how);
  }
}

}  // namespace tessera
