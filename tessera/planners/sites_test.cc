#include "tessera/planners/sites.h"

#include <algorithm>

#include "tessera/planners/all_planners.h"
#include "tessera/search/price/simulate_islands.h"
#include "tessera/search/test_questions.h"

namespace tessera::sites_planner_test {
namespace {

const char* const kGpt = "gpt:layers=4,hidden=512,heads=8,seq=512,vocab=2048";

// Two sites of four devices each, joined by a line. `first`: the preset of the first site.
std::unique_ptr<Asked> ask_sites(const std::string& first, const std::string& rate) {
  auto out = ask(kGpt, "t4:1", 128);
  const std::string parts = "[[part]]\nlike = \"" + first + "\"\n[[part]]\nlike = \"a10g\"\n";
  out->cluster = parse_cluster("name = \"pair\"\n" + parts +
                                   "[[switch]]\nname = \"a\"\nnodes = \"0\"\n[[switch]]\n"
                                   "name = \"b\"\nnodes = \"1\"\n[[path]]\nbetween = [\"a\", "
                                   "\"b\"]\nrate = \"" +
                                   rate + "\"\nlatency = \"1 ms\"\n",
                               "pair.toml")
                     .value();
  return out;
}

// The answer is no slower than that of any planner that it considers.
TEST(SitesPlanner, IsTheBestOfThePlanners) {
  const auto asked = ask_sites("t4", "100 Mb/s");
  const PlanAnswer answer = find_plan(asked->question, "auto", all_planners()).value();
  expect_sound(answer, asked->question);
  for (const char* planner : {"opfence", "dtfm", "megatron_grid"}) {
    const PlanAnswer other = find_plan(asked->question, planner, all_planners()).value();
    if (!other.best) continue;
    EXPECT_LE(step_of(answer), step_of(other)) << planner;
  }
  EXPECT_EQ(answer.plan.find("lossy"), std::string::npos);
}

// Outer steps are an answer only if they are allowed; the plan then says so in its first line, and
// its step is that of a simulation of its text.
TEST(SitesPlanner, TakesOuterStepsOnlyWhenAllowed) {
  const auto asked = ask_sites("a10g", "1 Gb/s");
  const double dense = step_of(find_plan(asked->question, "auto", all_planners()).value());
  asked->question.allows_lossy = true;
  const PlanAnswer answer = find_plan(asked->question, "auto", all_planners()).value();
  ASSERT_TRUE(answer.best.has_value());
  EXPECT_LT(step_of(answer), dense);
  EXPECT_NE(answer.plan.substr(0, answer.plan.find('\n')).find("lossy"), std::string::npos);
  const Plan plan = parse_plan(answer.plan).value();
  ASSERT_TRUE(plan.outer.has_value());
  EXPECT_EQ(plan.outer->every, kOuterEvery);
  CompileTexts texts{kGpt, answer.plan, 128};
  texts.takes_outer = true;
  const Compiled compiled = compile(texts).value();
  EXPECT_DOUBLE_EQ(
      simulate_islands(compiled, asked->cluster, asked->question.options).value().step_time_s,
      step_of(answer));
  asked->question.fixed["outer_every"] = "200";
  const PlanAnswer rarer = find_plan(asked->question, "auto", all_planners()).value();
  EXPECT_LT(step_of(rarer), step_of(answer));
  EXPECT_EQ(parse_plan(rarer.plan).value().outer->every, 200);
}

// A planner that does not choose a setting that is fixed is not asked.
TEST(SitesPlanner, KeepsWhatIsFixed) {
  const auto asked = ask_sites("t4", "100 Mb/s");
  asked->question.fixed["bucket_bytes"] = "1000000";
  const PlanAnswer answer = find_plan(asked->question, "auto", all_planners()).value();
  int64_t refused = 0;
  for (const PlanCandidate& one : answer.simulated)
    refused +=
        one.refused.find("bucket_bytes=1000000: expected --planner auto") != std::string::npos;
  EXPECT_EQ(refused, 2) << "opfence and dtfm";
}

TEST(SitesPlanner, RefusesOuterStepsThatCannotBe) {
  const auto asked = ask_sites("a10g", "1 Gb/s");
  asked->question.fixed["outer_every"] = "50";
  EXPECT_EQ(find_plan(asked->question, "auto", all_planners()).error().message,
            "plan: --fix outer_every=50: expected --allow lossy, found none");
  asked->question.allows_lossy = true;
  asked->question.batch = 129;
  EXPECT_NE(find_plan(asked->question, "auto", all_planners())
                .error()
                .message.find("that the 2 sites divide"),
            std::string::npos);
  asked->cluster = load_cluster("t4:2").value();
  EXPECT_NE(find_plan(asked->question, "auto", all_planners())
                .error()
                .message.find("no lines between sites"),
            std::string::npos);
}

}  // namespace
}  // namespace tessera::sites_planner_test
