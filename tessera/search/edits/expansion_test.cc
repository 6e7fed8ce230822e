#include "tessera/search/edits/expansion.h"

#include <gtest/gtest.h>

#include "tessera/plan/layout/part.h"
#include "tessera/search/choices/spaces.h"
#include "tessera/search/question/with_part.h"
#include "tessera/search/rank/ranking.h"
#include "tessera/search/test_questions.h"

namespace tessera::expansion_test {
namespace {

const char* const kGpt = "gpt:layers=2,hidden=160,heads=4,seq=128,vocab=300";

// Asks for replicas alone: whether ops are taken apart is decided before and after the search.
std::unique_ptr<Asked> ask_replicas(const std::string& model, const std::string& machine,
                                    int64_t batch, size_t programs) {
  auto out = ask(model, machine, batch);
  out->question.fixed = {{"pp", "1"}, {"tp", "1"}};
  out->question.evaluations = programs;
  return out;
}

// Returns the seconds of the fastest plan of the space, with the text as a part.
double fastest(PlanQuestion question, const char* part) {
  if (part != nullptr) question.part = parse_part(part, "part.toml", planned_axes()).value();
  return step_of(find_in_space(question, whole_space).value());
}

// On this machine's cores attention in products may be faster than the fused kernel, by their
// measured or presumed rates, or slower: `auto` is as fast as the better of both searches.
TEST(Expansions, AreChosenWhereTheyAreFaster) {
  const auto asked = ask_replicas(kGpt, "local:2", 16, 8);
  const double fused = fastest(asked->question, nullptr);
  const double apart = fastest(asked->question, "expand = \"blocks.*.attn.core\"");
  const PlanAnswer answer = find_plan(asked->question, "auto", search_planners()).value();
  expect_sound(answer, asked->question);
  EXPECT_LE(step_of(answer), std::min(fused, apart) * 1.001);
  if (apart < .98 * fused) {
    EXPECT_NE(answer.plan.find("\"blocks.*.attn.core\""), std::string::npos) << answer.plan;
  }
  if (apart > fused) {
    EXPECT_EQ(answer.plan.find("attn.core"), std::string::npos) << answer.plan;
  }
}

// The device's fused kernels are at their roofline, so products that write their scores cost more.
TEST(Expansions, AreLeftWhereFusedKernelsAreFaster) {
  const auto asked =
      ask_replicas("gpt:layers=4,hidden=1024,heads=16,seq=1024,vocab=1024", "dgx-a100:1", 32, 4);
  asked->question.compute = DType::kBFloat16;
  const double step = step_of(find_in_space(asked->question, whole_space).value());
  int searches = 0;
  const auto found = find_with_expansions(asked->question, [&](const PlanQuestion& with) {
                       ++searches;
                       return find_in_space(with, whole_space);
                     }).value();
  EXPECT_EQ(searches, 1);
  EXPECT_FALSE(found.question.part.has_value());
  EXPECT_EQ(step_of(found.answer), step);
}

// The device has no fused kernel near its roofline, so there is one search, around the products.
TEST(Expansions, AreSearchedAloneWhereTheyAreClearlyFaster) {
  const auto asked =
      ask_replicas("bert:layers=4,hidden=1024,heads=16,seq=512,vocab=1024", "dgx-v100:1", 64, 4);
  asked->question.compute = DType::kBFloat16;
  const auto search = [](const PlanQuestion& with) { return find_in_space(with, whole_space); };
  const double fused = step_of(search(asked->question).value());
  int searches = 0;
  const auto found = find_with_expansions(asked->question, [&](const PlanQuestion& with) {
                       ++searches;
                       return search(with);
                     }).value();
  EXPECT_EQ(searches, 1);
  ASSERT_TRUE(found.question.part.has_value());
  EXPECT_LT(step_of(found.answer), .95 * fused);
}

TEST(Expansions, OfAPartOfTheUsersStay) {
  const auto asked = ask_replicas(kGpt, "local:2", 16, 8);
  asked->question.part =
      parse_part("expand = \"blocks.0.attn.core\"", "part.toml", planned_axes()).value();
  const PlanAnswer answer = find_plan(asked->question, "auto", search_planners()).value();
  ASSERT_TRUE(answer.best.has_value());
  EXPECT_EQ(parse_plan(answer.plan).value().expand, std::vector<std::string>{"blocks.0.attn.core"});
}

// Entries of a user's part are in the answer beside the expansion.
TEST(Expansions, GoWithAPartOfTheUsers) {
  const auto asked = ask_replicas(kGpt, "local:2", 16, 8);
  asked->question.part = parse_part("micro_batches = 2", "part.toml", planned_axes()).value();
  const PlanAnswer answer = find_plan(asked->question, "auto", search_planners()).value();
  expect_sound(answer, asked->question);
  EXPECT_EQ(parse_plan(answer.plan).value().micro_batches, 2);
}

}  // namespace
}  // namespace tessera::expansion_test
