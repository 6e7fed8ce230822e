#include "tessera/planners/terapipe.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <numeric>

#include "tessera/planners/all_planners.h"
#include "tessera/planners/published/terapipe.h"
#include "tessera/search/test_questions.h"

namespace tessera::terapipe_test {
namespace {

// Calls act(lengths) for all ways to cut `left` positions.
void for_each_cut(int64_t left, std::vector<int64_t>& lengths,
                  const std::function<void(const std::vector<int64_t>&)>& act) {
  if (left == 0) return act(lengths);
  for (int64_t next = 1; next <= left; ++next) {
    lengths.push_back(next);
    for_each_cut(left - next, lengths, act);
    lengths.pop_back();
  }
}

const char* const kGpt = "gpt:layers=4,hidden=512,heads=8,seq=256,vocab=1024";

// The times of all slices add up to those of the passes.
TEST(UnitPricer, SlicesAddUpToThePasses) {
  const Cluster cluster = load_cluster("dgx-a100:1").value();
  UnitPricer pricer({kGpt, DType::kFloat32, &cluster, SimulateOptions(), 0});
  UnitQuestion asked;
  asked.slices = {100, 100, 56};
  const UnitPrices prices = *pricer.price(asked).value();
  ASSERT_EQ(prices.slice_s.size(), 3U);
  for (size_t u = 0; u < prices.units.size(); ++u) {
    double sum = 0;
    for (const auto& slice : prices.slice_s) sum += slice[u];
    EXPECT_NEAR(sum, prices.units[u].forward_s + prices.units[u].backward_s, 1e-12);
  }
  EXPECT_GT(slowest_slice(prices), 1.0 / 3);
  EXPECT_LT(slowest_slice(prices), .6);
}

// Batches follow one another in equal slices, so the bubble counts once.
TEST(Slices, RepeatedEqualBruteForce) {
  for (const int64_t repeats : {1, 3, 8}) {
    published::SliceProblem problem;
    problem.positions = 9;
    problem.stages = 5;
    problem.repeats = repeats;
    problem.seconds = [](int64_t, int64_t slice, int64_t context) {
      return std::max(2.5, static_cast<double>(slice)) + static_cast<double>(slice * context) / 9;
    };
    double least = std::numeric_limits<double>::infinity();
    std::vector<int64_t> lengths;
    for_each_cut(9, lengths, [&](const std::vector<int64_t>& cut) {
      least = std::min(least, published::slices_seconds(problem, cut));
    });
    const auto plan = published::best_slices(problem);
    EXPECT_NEAR(plan.seconds, least, 1e-9) << repeats;
    EXPECT_NEAR(published::slices_seconds(problem, plan.parts[0].slices), least, 1e-9);
  }
}

// The planner's answer is within a tenth of the best of every slicing of six pieces, as programs.
TEST(TeraPipePlanner, IsNearTheBestOfAllSlicings) {
  const std::string model = "gpt:layers=4,hidden=2048,heads=16,seq=768,vocab=512";
  const auto asked = ask(model, "dgx-a100:1", 1);
  asked->question.fixed = {{"pp", "4"}, {"devices", "4"}, {"tp", "1"}, {"recompute", "none"}};
  const PlanAnswer answer = find_plan(asked->question, "terapipe", all_planners()).value();
  ASSERT_TRUE(answer.best.has_value());
  Compiler compiler;
  const auto built = compiler.model(model, 1, DType::kFloat32).value();
  const Fold fold = fold_layers(built->graph).value();
  double least = std::numeric_limits<double>::infinity();
  std::vector<int64_t> lengths;
  for_each_cut(6, lengths, [&](const std::vector<int64_t>& cut) {
    if (cut.size() == 1 || cut.front() > 4) return;
    Choice choice = best_of(answer).choice;
    choice.schedule = "token";
    choice.sliced_stages = true;
    choice.slices = {};
    for (const int64_t length : cut) choice.slices.push_back(128 * length);
    const std::string text = write_plan(choice, built->graph, fold.units, "x").value();
    const auto lowering = compiler.lower(forward_of(built), parse_plan(text).value()).value();
    SimulateOptions quick = asked->question.options;
    quick.critical_path = false;
    least = std::min(least, simulate(*lowering, asked->cluster, quick)->step_time_s);
  });
  EXPECT_LE(*best_of(answer).step_s, 1.1 * least) << best_of(answer).choice.str();
}

TEST(TeraPipePlanner, PlansOfCausalModelsLower) {
  for (const char* model :
       {kGpt, "mixtral:layers=2,hidden=128,heads=4,experts=4,seq=64,vocab=256"}) {
    const auto asked = ask(model, "dgx-a100:1", 2);
    asked->question.fixed["devices"] = "4";
    const auto answer = find_plan(asked->question, "terapipe", all_planners());
    ASSERT_TRUE(answer.has_value()) << model << ": " << answer.error().message;
    for (const PlanCandidate& candidate : answer->simulated)
      EXPECT_EQ(candidate.refused, "") << model << ": " << candidate.choice.str();
    ASSERT_TRUE(answer->best.has_value()) << model;
    EXPECT_EQ(find_plan(asked->question, "terapipe", all_planners())->plan, answer->plan) << model;
  }
}

// With one sequence and many stages, slices keep the stages busy.
TEST(TeraPipePlanner, SlicesWhereSequencesAreFew) {
  const auto asked = ask("gpt:layers=8,hidden=4096,heads=32,seq=2048,vocab=1024", "dgx-a100:1", 1);
  asked->question.fixed = {{"pp", "8"}};
  const PlanAnswer answer = find_plan(asked->question, "terapipe", all_planners()).value();
  ASSERT_TRUE(answer.best.has_value());
  const Choice& choice = best_of(answer).choice;
  EXPECT_GE(choice.slices.size(), 4U) << choice.str();
  EXPECT_EQ(std::accumulate(choice.slices.begin(), choice.slices.end(), int64_t{0}), 2048);
}

TEST(TeraPipePlanner, SlicesCanBeFixed) {
  const auto asked = ask("gpt:layers=4,hidden=256,heads=4,seq=64,vocab=512", "dgx-a100:1", 8);
  asked->question.fixed = {{"devices", "4"}, {"pp", "2"}, {"tp", "1"}, {"slices", "4"}};
  const PlanAnswer answer = find_plan(asked->question, "terapipe", all_planners()).value();
  ASSERT_TRUE(answer.best.has_value());
  for (const PlanCandidate& candidate : answer.simulated)
    EXPECT_EQ(candidate.choice.slices, (std::vector<int64_t>{16, 16, 16, 16}));
  expect_sound(answer, asked->question);
  // A plan without stages has no slices, so it is no answer.
  asked->question.fixed.erase("pp");
  const PlanAnswer free = find_plan(asked->question, "terapipe", all_planners()).value();
  for (const PlanCandidate& candidate : free.simulated)
    EXPECT_EQ(candidate.choice.slices.size(), 4U) << candidate.choice.str();
}

// A micro-batch's slices add their gradients up before these are summed into shards.
TEST(TeraPipePlanner, SlicesHoldWholeGradients) {
  const auto asked = ask("gpt:layers=8,hidden=2048,heads=16,seq=512,vocab=1024", "dgx-a100:1", 8);
  asked->question.compute = DType::kBFloat16;
  asked->question.evaluations = 2;
  asked->question.fixed = {{"pp", "2"}, {"dp", "4"}, {"slices", "4"}, {"zero", "2"}};
  const PlanAnswer answer = find_plan(asked->question, "terapipe", all_planners()).value();
  size_t compared = 0;
  for (const PlanCandidate& one : answer.simulated) {
    if (!one.step_s || one.choice.slices.empty()) continue;
    ++compared;
    EXPECT_GT(one.estimate.memory_bytes, .95 * one.need_bytes) << one.choice.str();
    EXPECT_LT(one.estimate.memory_bytes, 1.3 * one.need_bytes) << one.choice.str();
  }
  EXPECT_GE(compared, 1U);
}

TEST(TeraPipePlanner, TheAnswerFits) {
  const auto asked = ask(kGpt, "dgx-a100:1", 8);
  asked->question.fixed = {{"devices", "4"}, {"tp", "1"}, {"pp", "4"}};
  const PlanAnswer free = find_plan(asked->question, "terapipe", all_planners()).value();
  asked->question.memory_limit_bytes = static_cast<int64_t>(.95 * best_of(free).need_bytes);
  const PlanAnswer tight = find_plan(asked->question, "terapipe", all_planners()).value();
  if (tight.best) {
    EXPECT_LE(best_of(tight).need_bytes, .95 * best_of(free).need_bytes);
  }
  asked->question.memory_limit_bytes = 1000000;
  EXPECT_FALSE(find_plan(asked->question, "terapipe", all_planners())->best.has_value());
}

TEST(TeraPipePlanner, WrongQuestions) {
  const auto refusal = [](const std::string& model, const std::string& key = "",
                          const std::string& value = "") {
    const auto asked = ask(model, "dgx-a100:1", 4);
    if (!key.empty()) asked->question.fixed[key] = value;
    const auto answer = find_plan(asked->question, "terapipe", all_planners());
    if (answer) return std::string("no error");
    EXPECT_EQ(answer.error().code, ErrorCode::kInvalidInput);
    return answer.error().message;
  };
  EXPECT_EQ(refusal("mlp:layers=2"),
            "planner terapipe: expected a model with the dim 'seq', found none");
  EXPECT_TRUE(refusal("bert:layers=2,hidden=64,heads=4,seq=32,vocab=64")
                  .starts_with("planner terapipe: expected causal attention, found op "));
  EXPECT_EQ(refusal(kGpt, "schedule", "1f1b"),
            "planner terapipe: expected the schedule token or token_1f1b, found '1f1b'");
  EXPECT_TRUE(
      refusal(kGpt, "slices", "7")
          .starts_with("planner terapipe: --fix slices=7: expected a number of equal slices of "))
      << refusal(kGpt, "slices", "7");
}

}  // namespace
}  // namespace tessera::terapipe_test
