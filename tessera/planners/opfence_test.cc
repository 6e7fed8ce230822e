#include "tessera/planners/opfence.h"

#include <algorithm>
#include <map>
#include <set>

#include "tessera/planners/all_planners.h"
#include "tessera/search/test_questions.h"

namespace tessera::opfence_planner_test {
namespace {

const char* const kGpt = "gpt:layers=8,hidden=1024,heads=16,seq=512,vocab=2048";

// Two sites of four devices each, joined by a line.
std::unique_ptr<Asked> ask_sites(const std::string& rate, int64_t batch = 32,
                                 const std::string& other = "t4") {
  auto out = ask(kGpt, "t4:1", batch);
  out->cluster =
      parse_cluster("name = \"pair\"\n[[part]]\nlike = \"t4\"\n[[part]]\nlike = \"" + other +
                        "\"\n[[switch]]\nname = \"a\"\nnodes = \"0\"\n[[switch]]\nname = \"b\"\n"
                        "nodes = \"1\"\n[[path]]\nbetween = [\"a\", \"b\"]\nrate = \"" +
                        rate + "\"\nlatency = \"1 ms\"\n",
                    "pair.toml")
          .value();
  return out;
}

TEST(DeviceLinks, SitesAndPairsHaveTheirOwn) {
  const auto asked = ask_sites("1 Gb/s");
  const CollectiveCosts costs(asked->cluster, asked->question.options.style);
  const DeviceLinks links = device_links(costs, 8);
  EXPECT_NEAR(links.bytes_per_second[0][4], 125e6, 0.06 * 125e6);
  EXPECT_GE(links.latency_seconds[0][4], 1e-3);
  EXPECT_LT(links.latency_seconds[0][4], 2e-3);
  EXPECT_GT(links.bytes_per_second[0][1], 10 * links.bytes_per_second[0][4]);
  EXPECT_EQ(links.bytes_per_second[3][3], 0);
}

// Over a slow line the second site is dropped; over a fast one all devices work. The formula is near
// the program in both.
TEST(OpFencePlanner, DropsDevicesBehindSlowLinks) {
  std::map<std::string, double> steps;
  for (const char* rate : {"100 Mb/s", "25 Gb/s"}) {
    const auto asked = ask_sites(rate);
    const PlanAnswer answer = find_plan(asked->question, "opfence", all_planners()).value();
    expect_sound(answer, asked->question);
    const PlanCandidate& best = best_of(answer);
    const bool is_slow = std::string(rate) == "100 Mb/s";
    EXPECT_EQ(best.choice.stages, is_slow ? 4 : 8) << rate;
    std::set<bool> sites;
    for (const int64_t device : best.choice.device_order) sites.insert(device >= 4);
    EXPECT_EQ(sites.size(), is_slow ? 1U : 2U);
    EXPECT_NEAR(best.estimate.step_s / step_of(answer), 1, 0.1) << rate;
    EXPECT_EQ(answer.plan.find("compress"), std::string::npos);
    steps[rate] = step_of(answer);
  }
  EXPECT_LT(steps["25 Gb/s"], steps["100 Mb/s"]);
}

// The plans that the planner makes are no slower than equal splits over all devices.
TEST(OpFencePlanner, IsNoSlowerThanEqualSplits) {
  for (const char* rate : {"1 Gb/s", "25 Gb/s"}) {
    const auto asked = ask_sites(rate, 16, "a10g");
    asked->question.fixed = {{"devices", "8"}};
    const PlanAnswer answer = find_plan(asked->question, "opfence", all_planners()).value();
    ASSERT_TRUE(answer.best.has_value());
    for (const char* plan : {"gpipe(8, 16)", "one_f_one_b(8, 16)", "gpipe(4, 16)"}) {
      const auto compiled = compile({kGpt, plan, 16}).value();
      const auto step =
          simulate(*compiled.lowering, asked->cluster, asked->question.options).value();
      EXPECT_LE(step_of(answer), step.step_time_s * 1.001) << rate << " " << plan;
    }
  }
}

// Codecs are used only if they are allowed, only on the slow border, and no more than hides.
TEST(OpFencePlanner, CompressesSlowBordersOnlyWhenAllowed) {
  const auto asked = ask_sites("1 Gb/s");
  const PlanAnswer dense = find_plan(asked->question, "opfence", all_planners()).value();
  asked->question.allows_lossy = true;
  const PlanAnswer lossy = find_plan(asked->question, "opfence", all_planners()).value();
  expect_sound(lossy, asked->question);
  EXPECT_LT(step_of(lossy), 0.8 * step_of(dense));
  const Plan plan = parse_plan(lossy.plan).value();
  EXPECT_EQ(plan.ranks(), 8);
  ASSERT_EQ(plan.compress.size(), 2U) << lossy.plan;
  for (const CompressEntry& entry : plan.compress) {
    EXPECT_EQ(entry.on, "send");
    EXPECT_EQ(entry.with.codec.kind, Codec::Kind::kTopK);
    EXPECT_GT(entry.with.codec.ratio, 0.02);
    EXPECT_EQ(entry.with.error_feedback, entry.tensors.find("grad.") != std::string::npos);
  }
  EXPECT_NE(lossy.plan.find("lossy"), std::string::npos);
  EXPECT_NE(best_of(lossy).name().find("(lossy)"), std::string::npos);
  // A fixed ratio bounds the compression.
  asked->question.fixed = {{"compression", "2"}, {"micro_batches", "32"}, {"pp", "8"}};
  const PlanAnswer bounded = find_plan(asked->question, "opfence", all_planners()).value();
  const Plan mild = parse_plan(bounded.plan).value();
  for (const CompressEntry& entry : mild.compress) EXPECT_GE(entry.with.codec.ratio, 0.2);
}

TEST(OpFencePlanner, WhatIsFixedIsNotSearched) {
  const auto asked = ask_sites("1 Gb/s");
  asked->question.fixed = {
      {"pp", "3"}, {"micro_batches", "8"}, {"schedule", "1f1b"}, {"recompute", "full"}};
  const PlanAnswer answer = find_plan(asked->question, "opfence", all_planners()).value();
  ASSERT_TRUE(answer.best.has_value());
  EXPECT_EQ(best_of(answer).choice.stages, 3);
  EXPECT_EQ(best_of(answer).choice.micro_batches, 8);
  EXPECT_EQ(best_of(answer).choice.schedule, "1f1b");
  EXPECT_EQ(best_of(answer).choice.recompute, "full");
  const auto refusal = [&](std::map<std::string, std::string> fixed) {
    asked->question.fixed = std::move(fixed);
    const auto found = find_plan(asked->question, "opfence", all_planners());
    return found ? std::string("an answer") : found.error().message;
  };
  EXPECT_EQ(refusal({{"dp", "2"}}), "plan: --fix dp=2: opfence has stages of one device each");
  EXPECT_EQ(refusal({{"tp", "2"}}), "plan: --fix tp=2: opfence does not cut layers");
  EXPECT_EQ(refusal({{"compression", "10"}}),
            "plan: --fix compression=10: expected --allow lossy, found none");
  const auto wide = ask(kGpt, "dgx-a100:32", 512);
  EXPECT_EQ(find_plan(wide->question, "opfence", all_planners()).error().message,
            "plan: opfence: expected at most 128 devices, found 256 in dgx-a100");
}

TEST(OpFencePlanner, EqualQuestionsHaveEqualAnswers) {
  const auto asked = ask_sites("1 Gb/s", 8);
  asked->question.allows_lossy = true;
  const PlanAnswer a = find_plan(asked->question, "opfence", all_planners()).value();
  const PlanAnswer b = find_plan(asked->question, "opfence", all_planners()).value();
  EXPECT_EQ(to_text(a, asked->question, true), to_text(b, asked->question, true));
  EXPECT_EQ(a.plan, b.plan);
}

// DT-FM: the slow line carries gradients of one replica of each stage or activations, as the score
// says; every device is used once.
TEST(DtfmPlanner, GroupsAllDevicesIntoEqualStages) {
  const auto asked = ask_sites("1 Gb/s");
  for (const char* stages : {"1", "2", "4", "8"}) {
    asked->question.fixed = {{"pp", stages}, {"micro_batches", "4"}};
    const PlanAnswer answer = find_plan(asked->question, "dtfm", all_planners()).value();
    expect_sound(answer, asked->question);
    const Choice& choice = best_of(answer).choice;
    EXPECT_EQ(choice.stages, *stages - '0');
    EXPECT_EQ(choice.ranks(), 8);
    std::vector<int64_t> order = choice.device_order;
    std::sort(order.begin(), order.end());
    for (size_t i = 0; i < order.size(); ++i) EXPECT_EQ(order[i], static_cast<int64_t>(i));
  }
  asked->question.fixed = {{"pp", "3"}};
  EXPECT_EQ(find_plan(asked->question, "dtfm", all_planners()).error().message,
            "plan: --fix pp=3: dtfm has equal stages: expected a divisor of 8 devices");
}

}  // namespace
}  // namespace tessera::opfence_planner_test
