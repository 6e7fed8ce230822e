// Answers to questions with other objectives than time, beside the best of all plans of a small space.
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "brute_force.h"

namespace tessera::planner_test {
namespace {

constexpr double kUsdAnHour = 2.5, kMore = 1 + 1e-9;

// Returns a random question without fixed devices or a limit of memory, with all its plans.
std::unique_ptr<Instance> free_instance(uint64_t seed, int64_t devices) {
  while (true) {
    const auto asked = random_question(seed, devices, Size::kTiny);
    if (!asked->question.fixed.contains("devices") && !asked->limit_share)
      return random_instance(seed, devices, Size::kTiny);
    ++seed;
  }
}

double least_of(const Instance& instance, double deadline_s,
                const std::function<double(const SimulatedPlan&)>& cost) {
  double out = std::numeric_limits<double>::infinity();
  for (const SimulatedPlan& plan : instance.plans) {
    if (plan.step_s <= deadline_s) out = std::min(out, cost(plan));
  }
  return out;
}

PlanCandidate answer_to(PlanQuestion question, Goal goal, double deadline_s) {
  question.objective.goal = goal;
  question.objective.usd_an_hour = {kUsdAnHour};
  question.objective.deadline_s = deadline_s;
  const PlanAnswer answer = find_plan(question, "auto", all_planners()).value();
  EXPECT_TRUE(answer.best) << to_text(answer, question, false);
  return answer.simulated[answer.best.value_or(0)];
}

// With all programs nothing beats the answer, and with the usual number little does.
void expect_best(const Instance& instance, size_t evaluations, double allowed) {
  PlanQuestion question = instance.question;
  question.evaluations = evaluations;
  const auto usd = [](double step_s, int64_t devices) {
    return step_s * static_cast<double>(devices) * kUsdAnHour / 3600;
  };
  constexpr double kNever = std::numeric_limits<double>::infinity();
  const PlanCandidate cheap = answer_to(question, Goal::kMoney, 0);
  EXPECT_LE(usd(*cheap.step_s, cheap.used.count),
            allowed * least_of(instance, kNever,
                               [&](const auto& plan) { return usd(plan.step_s, plan.devices); }))
      << instance.str();
  EXPECT_DOUBLE_EQ(usd_a_step(*cheap.step_s, cheap.used), usd(*cheap.step_s, cheap.used.count));
  const double deadline_s = 1.5 * instance.best()->step_s;
  const PlanCandidate few = answer_to(question, Goal::kDevices, deadline_s);
  EXPECT_LE(*few.step_s, deadline_s);
  EXPECT_LE(static_cast<double>(few.used.count),
            allowed * least_of(instance, deadline_s,
                               [](const auto& plan) { return static_cast<double>(plan.devices); }))
      << instance.str();
  EXPECT_LE(*few.step_s, allowed * least_of(instance, deadline_s,
                                            [&](const auto& plan) {
                                              return plan.devices == few.used.count ? plan.step_s
                                                                                    : kNever;
                                            }))
      << instance.str() << ": of equal numbers of devices the fastest";
  const PlanCandidate small = answer_to(question, Goal::kMemory, deadline_s);
  EXPECT_LE(*small.step_s, deadline_s);
  EXPECT_LE(small.need_bytes,
            allowed * least_of(instance, deadline_s, [](const auto& plan) { return plan.bytes; }))
      << instance.str();
}

TEST(Objectives, WithAllProgramsTheAnswerIsTheBestOfAllPlans) {
  for (const uint64_t seed : {11, 30}) expect_best(*free_instance(seed, 2), kEnough, kMore);
}

TEST(Objectives, TheUsualProgramsAreNearlyEnough) { expect_best(*free_instance(200, 4), 0, 1.1); }

// The model is no small one: formulas leave out most choices.
TEST(Objectives, AnAnswerIsNeverWorseThanTheFastestPlan) {
  const Cluster cluster = load_cluster("dgx-a100:2").value();
  PlanQuestion question;
  question.model = "gpt:layers=8,hidden=512,heads=8,seq=256,vocab=8192";
  question.batch = 32;
  question.cluster = &cluster;
  question.options.style = parse_style("tessera").value();
  question.compute = DType::kBFloat16;
  question.objective.usd_an_hour = {kUsdAnHour};
  question.evaluations = 16;
  const auto ask = [&](Goal goal, double within) {
    PlanQuestion one = question;
    one.objective.goal = goal;
    one.objective.within = within;
    return find_plan(one, "auto", all_planners()).value();
  };
  const PlanAnswer fastest = ask(Goal::kTime, 0);
  const PlanCandidate& time = fastest.simulated[*fastest.best];
  for (const Goal goal : {Goal::kMoney, Goal::kDevices, Goal::kMemory}) {
    const PlanAnswer answer = ask(goal, 1.5);
    ASSERT_TRUE(answer.best);
    const PlanCandidate& best = answer.simulated[*answer.best];
    EXPECT_DOUBLE_EQ(answer.fastest_s, *time.step_s);
    EXPECT_DOUBLE_EQ(answer.deadline_s, 1.5 * *time.step_s);
    EXPECT_LE(*best.step_s, answer.deadline_s);
    EXPECT_TRUE(best.fits);
    PlanQuestion ordered = question;
    ordered.objective.goal = goal;
    EXPECT_LE(merit_of(ordered, best), merit_of(ordered, time)) << best.name();
    for (const PlanCandidate& other : answer.simulated) {
      if (!other.step_s || !other.fits || *other.step_s > answer.deadline_s) continue;
      EXPECT_FALSE(merit_of(ordered, other) < merit_of(ordered, best) &&
                   !ties(merit_of(ordered, other), merit_of(ordered, best), 1e-6))
          << other.name() << " is better than the answer " << best.name();
    }
  }
}

TEST(Objectives, WhereNoPlanMeetsTheDeadlineThereIsNoAnswer) {
  const auto instance = free_instance(11, 2);
  PlanQuestion question = instance->question;
  question.objective = {Goal::kDevices};
  question.objective.deadline_s = .5 * instance->best()->step_s;
  const PlanAnswer answer = find_plan(question, "auto", all_planners()).value();
  EXPECT_FALSE(answer.best);
  EXPECT_NE(to_text(answer, question, false).find("no plan takes at most"), std::string::npos);
}

TEST(Objectives, APlannerThatLooksForTheLeastTimeSaysSo) {
  const auto instance = free_instance(11, 2);
  PlanQuestion question = instance->question;
  question.objective.goal = Goal::kMemory;
  const auto answer = find_plan(question, "galvatron", all_planners());
  ASSERT_FALSE(answer);
  EXPECT_EQ(
      answer.error().message,
      "plan: --objective memory: expected --planner auto or megatron_grid, found 'galvatron', "
      "which looks for the least time");
}

}  // namespace
}  // namespace tessera::planner_test
