// Tests tessera profile: which name each time is filed under, medians, links, errors.
#include "tessera/runtime/measure/calibration.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tessera/runtime/measure/profiling.h"

namespace tessera {
namespace {

TEST(Repeats, give_median_and_spread_sorted_by_size) {
  Repeats repeats;
  for (const double seconds : {3.0, 1.0, 2.0, 4.0, 5.0}) repeats.add("f@1", {"n"}, {20}, seconds);
  repeats.add("f@1", {"n"}, {4}, 0.5);
  Profile profile;
  profile.families["f@1"].samples = {{{20}, 9, 0}};  // measured before: replaced
  repeats.write(profile);
  const Family& family = profile.families.at("f@1");
  EXPECT_EQ(family.sizes, std::vector<std::string>{"n"});
  ASSERT_EQ(family.samples.size(), 2U);
  EXPECT_EQ(family.samples[0].size, std::vector<double>{4});
  EXPECT_DOUBLE_EQ(family.samples[1].seconds, 3);
  EXPECT_NEAR(family.samples[1].spread, (4.6 - 1.4) / 3, 1e-12);
}

TEST(Calibration, files_every_kernel_of_a_step) {
  Repeats repeats;
  const auto times =
      run_case({"gpt:layers=1,hidden=16,heads=2,seq=8,vocab=256", 2}, 2, 2, repeats, 1, "cpu");
  ASSERT_TRUE(times) << times.error().message;
  EXPECT_GT(times->step_s, 0);
  EXPECT_GT(times->instructions, 50);
  Profile profile;
  repeats.write(profile);
  for (const char* name :
       {"einsum.float32.nn.bias@2", "einsum.float32.tn@2", "attention.float32.causal@2",
        "attention_grad.float32.causal@2", "layer_norm.float32@2", "gelu_grad.float32@2",
        "cross_entropy.float32@2", "embedding_grad.float32@2", "adamw.float32@2"}) {
    EXPECT_NE(find_family(profile, std::string(name).substr(0, std::string(name).size() - 2), 2),
              nullptr)
        << name;
  }
  for (const auto& [name, family] : profile.families) {
    for (const Sample& sample : family.samples) {
      EXPECT_GT(sample.seconds, 0) << name;
      EXPECT_EQ(sample.size.size(), family.sizes.size()) << name;
    }
  }
}

// The softmax of attention that is taken apart is as wide as there are keys. A router's softmax is
// as wide as there are experts, so its time tells nothing about the former.
TEST(Calibration, softmaxes_are_measured_as_wide_as_keys) {
  const auto cases = calibration_cases(2, false, false);
  EXPECT_TRUE(std::any_of(cases.begin(), cases.end(),
                          [](const CalibrationCase& one) { return one.plan == "rsa(1)"; }));
  Repeats repeats;
  ASSERT_TRUE(run_case({"bert:layers=1,hidden=16,heads=2,seq=24,vocab=64", 2, "rsa(1)"}, 1, 1,
                       repeats, 1, "cpu"));
  Profile profile;
  repeats.write(profile);
  const Family* softmax = find_family(profile, "softmax.float32", 1);
  ASSERT_NE(softmax, nullptr);
  EXPECT_EQ(softmax->samples.back().size.back(), 24);
}

TEST(Profiling, a_step_adds_its_sizes_to_what_was_measured) {
  Profile profile;
  profile.families["gelu.float32@2"].samples.push_back({{7}, 1, 0});
  const auto sizes = profile_step(
      {}, {"gpt:layers=1,hidden=16,heads=2,seq=8,vocab=256", "data_parallel(2)", 4}, profile);
  ASSERT_TRUE(sizes) << sizes.error().message;
  EXPECT_GT(*sizes, 20U);
  const Family& gelu = profile.families.at("gelu.float32@2");
  ASSERT_EQ(gelu.samples.size(), 2U);
  EXPECT_EQ(gelu.samples[0].seconds, 1);
  // 2 sequences of 8 tokens, 64 wide, read and written.
  EXPECT_EQ(gelu.samples[1].size, std::vector<double>{2.0 * 2 * 8 * 64 * 4});
  EXPECT_FALSE(profile_step({}, {"gpt:layers=1", "no_recipe(2)", 4}, profile));
}

TEST(Calibration, a_plan_of_other_ranks_is_refused) {
  Repeats repeats;
  const auto times =
      run_case({"gpt:layers=1,hidden=16,heads=2,seq=8,vocab=256", 4, "data_parallel(4)"}, 2, 1,
               repeats, 1, "cpu");
  ASSERT_FALSE(times);
  EXPECT_EQ(times.error().message, "plan data_parallel(4): expected 2 ranks, found 4");
}

TEST(Calibration, there_are_fewer_quick_cases) {
  for (const bool accelerated : {false, true}) {
    for (const int64_t ranks : {1, 2, 4}) {
      const size_t quick = calibration_cases(ranks, true, accelerated).size();
      EXPECT_GT(quick, 1U);
      EXPECT_GT(calibration_cases(ranks, false, accelerated).size(), quick);
    }
  }
}

TEST(Calibration, collectives_and_messages_are_timed_over_bytes) {
  Repeats found;
  const Status status = comm::run_threads(2, {}, [&](comm::Communicator& world) {
    Repeats mine;
    ASSERT_TRUE(time_links(world, "threads", true, "cpu", mine));
    if (world.rank() == 0) found = mine;
  });
  ASSERT_TRUE(status) << status.error().message;
  Profile profile;
  found.write(profile);
  for (const char* name : {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast",
                           "reduce", "permute", "message"}) {
    const auto family = profile.families.find(std::string(name) + ".threads");
    ASSERT_NE(family, profile.families.end()) << name;
    const auto& samples = family->second.samples;
    ASSERT_GE(samples.size(), 2U) << name;
    EXPECT_GT(samples.back().size.back(), samples.front().size.back()) << name;
    for (const Sample& sample : samples) EXPECT_GT(sample.seconds, 0) << name;
  }
}

TEST(Profiling, refuses_a_device_that_this_machine_lacks) {
  ProfileOptions options;
  options.device = "tpu";
  const auto profile = profile_machine(options);
  ASSERT_FALSE(profile);
  EXPECT_EQ(profile.error().code, ErrorCode::kInvalidInput);
  EXPECT_TRUE(profile.error().message.starts_with("device 'tpu': expected cpu, cuda, "));
}

// Kernels, collectives and messages are timed by the events of an accelerator's streams.
TEST(Profiling, measures_an_accelerator) {
  ProfileOptions options;
  options.device = "stand-in";
  options.ranks = {1, 2};
  options.quick = true;
  const auto profile = profile_machine(options);
  ASSERT_TRUE(profile) << profile.error().message;
  EXPECT_TRUE(profile->device.starts_with("stand-in, played by the processor, beside "));
  EXPECT_EQ(profile->scalars.at("device.count"), 8);
  EXPECT_GT(profile->scalars.at("device.memory_bytes"), 1e9);
  EXPECT_GT(profile->scalars.at("device.peak.bf16"), 0);
  EXPECT_GT(profile->scalars.at("host.issue_s@1"), 0);
  for (const char* family : {"einsum.bfloat16.nt@1", "all_reduce.threads", "message.threads"})
    EXPECT_TRUE(profile->families.contains(family)) << family;
  for (const auto& [name, family] : profile->families) {
    for (const Sample& sample : family.samples) EXPECT_GT(sample.seconds, 0) << name;
  }
}

}  // namespace
}  // namespace tessera
