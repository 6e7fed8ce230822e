// Checks what `auto` tries beyond the grid of degrees: buckets and prefetch depths, and devices that
// stay unused. Checks which keys of the other planners it refuses.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "tessera/planners/all_planners.h"
#include "tessera/search/choices/spaces.h"
#include "tessera/search/rank/ranking.h"
#include "tessera/search/test_questions.h"

namespace tessera {
namespace {

PlanAnswer answer_of(Asked& asked, const std::map<std::string, std::string>& fixed) {
  PlanQuestion question = asked.question;
  for (const auto& [key, value] : fixed) question.fixed[key] = value;
  return find_plan(question, "auto", all_planners()).value();
}

// Gathered parameters cross a network whose latency counts for each collective.
TEST(WideSearch, LargeBucketsWinWhereShardsCrossTheNetwork) {
  const auto asked =
      ask("llama:layers=8,hidden=4096,heads=32,kv_heads=8,ffn=14336,seq=2048,vocab=32000",
          "dgx-h100:8", 64);
  asked->question.compute = DType::kBFloat16;
  asked->question.fixed = {{"zero", "3"}, {"pp", "1"}, {"dp", "64"}};
  const PlanAnswer own = answer_of(*asked, {});
  const PlanAnswer plain =
      answer_of(*asked, {{"bucket_bytes", std::to_string(kPlainBucket)}, {"prefetch", "1"}});
  ASSERT_TRUE(own.best && plain.best);
  EXPECT_GT(best_of(own).choice.transfers.bucket_bytes, kPlainBucket);
  EXPECT_LT(step_of(own), .9 * step_of(plain));
  EXPECT_NE(own.plan.find("bucket_bytes = "), std::string::npos) << own.plan;
  expect_sound(own, asked->question);
}

// Without replicas, parameters that are alike on the devices of an axis inside a stage, as
// attention's are beside experts, can rest in shards over that axis.
TEST(WideSearch, ShardsLieOverAxesInsideAStage) {
  const auto asked =
      ask("mixtral:layers=3,hidden=64,heads=4,seq=32,vocab=64,ffn=64,experts=4", "dgx-a100:1", 4);
  asked->question.evaluations = 12;
  const std::map<std::string, std::string> two = {
      {"devices", "2"}, {"pp", "1"}, {"dp", "1"}, {"tp", "2"}};
  const PlanAnswer plain = answer_of(*asked, two);
  auto sharded_too = two;
  sharded_too["zero"] = "1";
  const PlanAnswer sharded = answer_of(*asked, sharded_too);
  ASSERT_TRUE(plain.best && sharded.best);
  EXPECT_EQ(best_of(sharded).choice.sharded, 1) << best_of(sharded).choice.str();
  EXPECT_NE(sharded.plan.find(R"({ tensors = "optimizer.*", over = "tp" })"), std::string::npos)
      << sharded.plan;
  EXPECT_LE(step_of(plain), step_of(sharded));
  expect_sound(sharded, asked->question);
}

TEST(WideSearch, TransfersCanBeFixed) {
  const auto asked = ask("gpt:layers=4,hidden=256,heads=4,seq=64,vocab=512", "dgx-a100:1", 16);
  const PlanAnswer answer = answer_of(*asked, {{"zero", "3"},
                                               {"dp", "4"},
                                               {"devices", "4"},
                                               {"prefetch", "2"},
                                               {"bucket_bytes", "1000000"}});
  ASSERT_TRUE(answer.best.has_value());
  for (const PlanCandidate& candidate : answer.simulated)
    EXPECT_EQ(candidate.choice.transfers, (TransferChoice{2, 1000000}));
  EXPECT_NE(answer.plan.find("ahead = 2"), std::string::npos) << answer.plan;
  EXPECT_NE(answer.plan.find("bucket_bytes = 1000000"), std::string::npos) << answer.plan;
  expect_sound(answer, asked->question);
}

// No number of replicas that divides the batch makes use of all devices.
TEST(WideSearch, DevicesStayUnusedWhereThatIsFaster) {
  const auto asked = ask("gpt:layers=2,hidden=1024,heads=16,seq=256,vocab=512", "dgx-a100:2", 15);
  asked->question.fixed = {{"pp", "1"}, {"tp", "1"}};
  const PlanAnswer answer = find_plan(asked->question, "auto", all_planners()).value();
  ASSERT_TRUE(answer.best.has_value());
  EXPECT_EQ(best_of(answer).choice.ranks(), 15);
}

TEST(WideSearch, WrongQuestions) {
  const auto asked = ask("gpt:layers=2,hidden=64,heads=4,seq=32,vocab=64", "dgx-a100:1", 8);
  const auto message = [&](const std::string& planner, const std::string& key,
                           const std::string& value) {
    asked->question.fixed = {{key, value}, {"devices", "4"}};
    const auto answer = find_plan(asked->question, planner, all_planners());
    return answer ? std::string("no error") : answer.error().message;
  };
  EXPECT_EQ(message("alpa", "rims", "1"),
            "plan: --fix rims=1: expected --planner auto, found planner 'alpa', which waits for "
            "halos before it computes");
  EXPECT_EQ(message("auto", "slices", "4"),
            "plan: --fix slices=4: expected --planner terapipe, found planner 'auto', which leaves "
            "sequences whole");
  EXPECT_EQ(message("auto", "schedule", "token_1f1b"),
            "plan: --fix schedule=token_1f1b: expected --planner terapipe, found planner "
            "'auto', which leaves sequences whole");
  EXPECT_EQ(message("auto", "prefetch", "65"),
            "plan: --fix prefetch=65: expected a whole number from 0 to 64");
  EXPECT_EQ(message("auto", "slices", "0"),
            "plan: --fix slices=0: expected a whole number of at least 1");
}

// Far slower choices are left out only where others are smaller, too: a fixed setting may not lead
// to a smaller choice than the whole space has.
TEST(WideSearch, WhatIsLeftOutIsNotSmaller) {
  const auto asked = ask("gpt:layers=4,hidden=512,heads=8,seq=128,vocab=1024", "dgx-a100:4", 32);
  asked->question.evaluations = 1;
  const PlanAnswer all = find_in_space(asked->question, megatron_space).value();
  ASSERT_FALSE(all.curve.empty());
  using Fixed = std::map<std::string, std::string>;
  for (const Fixed& fixed :
       {Fixed{{"zero", "3"}, {"recompute", "full"}}, Fixed{{"zero", "1"}, {"devices", "8"}}}) {
    asked->question.fixed = fixed;
    const PlanAnswer some = find_in_space(asked->question, megatron_space).value();
    ASSERT_FALSE(some.curve.empty());
    EXPECT_LE(all.curve.front().estimate.memory_bytes,
              some.curve.front().estimate.memory_bytes * (1 + 1e-9));
    EXPECT_LE(all.curve.back().estimate.step_s, some.curve.back().estimate.step_s * (1 + 1e-9));
  }
}

// Micro-batches of three samples a replica take longer than those of two, whose kernels' tiles they
// fill worse; those of four are faster (docs/theory/search.md section 12).
TEST(WideSearch, MicroBatchesGrowBeyondANumberThatSavesNothing) {
  const auto asked = ask("gpt:layers=16,hidden=2560,heads=20,seq=1024,vocab=50368,ffn=10240,tied=1",
                         "dgx-a100:1", 480);
  asked->question.compute = DType::kBFloat16;
  const auto best = [&](const std::string& micro_batches) {
    asked->question.fixed = {{"tp", "1"}, {"pp", "1"}, {"recompute", "none"}, {"zero", "1"}};
    if (!micro_batches.empty()) asked->question.fixed["micro_batches"] = micro_batches;
    const PlanAnswer answer = find_in_space(asked->question, megatron_space).value();
    return answer.simulated.at(answer.best.value());
  };
  const PlanCandidate found = best("");
  EXPECT_LT(*best("30").step_s, .99 * *best("20").step_s);  // else the machine is another one
  EXPECT_LE(found.choice.micro_batches, 15) << found.choice.str();
  EXPECT_LT(*found.step_s, .98 * *best("30").step_s);
}

// The priced program holds all of the embedding's states. A caching allocator's loss there is not
// its loss where these states rest in shards (docs/theory/search.md section 12).
TEST(WideSearch, MemoryByFormulaIsNearTheProgramsUnderACachingAllocator) {
  const auto asked =
      ask("llama:layers=8,hidden=8192,heads=64,kv_heads=8,ffn=28672,seq=4096,vocab=128256",
          "dgx-h100:4", 64);
  asked->question.compute = DType::kBFloat16;
  asked->question.options.style = parse_style("torchtitan").value();
  asked->question.evaluations = 4;
  size_t compared = 0;
  for (const char* zero : {"1", "2"}) {
    asked->question.fixed = {{"zero", zero}};
    const PlanAnswer answer = find_in_space(asked->question, megatron_space).value();
    for (const PlanCandidate& one : answer.simulated) {
      if (!one.step_s) continue;
      ++compared;
      EXPECT_LT(one.estimate.memory_bytes, 1.3 * one.need_bytes) << one.choice.str();
      EXPECT_GT(one.estimate.memory_bytes, .75 * one.need_bytes) << one.choice.str();
    }
  }
  EXPECT_GE(compared, 4U);
}

}  // namespace
}  // namespace tessera
