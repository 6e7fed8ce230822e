#include "tessera/plan/layout/part.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

const char* const kPlan =
    "mesh = { pp = 2, dp = 2, tp = 2 }\n"
    "micro_batches = 4\n"
    "split = [\n"
    "  { ops = \"*\", dim = \"batch\", over = \"dp\" },\n"
    "  { ops = \"*\", dim = \"ffn\", over = \"tp\" },\n"
    "]\n"
    "store = [\n"
    "  { tensors = \"optimizer.*\", over = \"dp\" },\n"
    "  { tensors = \"grad.*\", over = \"dp\" },\n"
    "]\n";
const std::vector<std::string> kAxes = {"pp", "dp", "tp"};

PlanPart part_of(const std::string& text) { return parse_part(text, "part.toml", kAxes).value(); }

std::string refused(const std::string& text) {
  const auto part = parse_part(text, "part.toml", kAxes);
  return part ? "no error" : part.error().message;
}

TEST(PlanPart, EntriesFollowThePlansAndKeysReplaceThem) {
  const Plan own = parse_plan(kPlan).value();
  const Plan plan = add_part(own, part_of("micro_batches = 8\n"
                                          "schedule = \"gpipe\"\n"
                                          "mesh = { dp = 4, cp = 3 }\n"
                                          "split = [ { ops = \"blocks.0\", dim = \"seq\", "
                                          "over = \"cp\" } ]\n"))
                        .value();
  EXPECT_EQ(to_toml(plan),
            to_toml(parse_plan("mesh = { pp = 2, dp = 4, tp = 2, cp = 3 }\n"
                               "micro_batches = 8\n"
                               "schedule = \"gpipe\"\n"
                               "split = [\n"
                               "  { ops = \"*\", dim = \"batch\", over = \"dp\" },\n"
                               "  { ops = \"*\", dim = \"ffn\", over = \"tp\" },\n"
                               "  { ops = \"blocks.0\", dim = \"seq\", over = \"cp\" },\n"
                               "]\n"
                               "store = [\n"
                               "  { tensors = \"optimizer.*\", over = \"dp\" },\n"
                               "  { tensors = \"grad.*\", over = \"dp\" },\n"
                               "]\n")
                        .value()));
}

// Only entries that the part decides altogether are left out of the plan.
TEST(PlanPart, OverriddenEntriesAreLeftOut) {
  const Plan own = parse_plan(kPlan).value();
  const Plan plan =
      add_part(own, part_of("split = [ { ops = \"*\", dim = \"ffn\", over = [] } ]\n"
                            "store = [\n"
                            "  { tensors = \"optimizer.*\", tier = \"host\" },\n"
                            "  { tensors = \"grad.*\", over = [], keep = \"step\" },\n"
                            "]\n"))
          .value();
  ASSERT_EQ(plan.splits.size(), 2U);
  EXPECT_EQ(plan.splits[0].dim, "batch");
  EXPECT_TRUE(plan.splits[1].over.empty());
  ASSERT_EQ(plan.stores.size(), 3U);  // the tier says nothing of the shards
  EXPECT_EQ(plan.stores[0].tensors, "optimizer.*");
  EXPECT_EQ(plan.stores[1].tensors, "optimizer.*");
  EXPECT_EQ(plan.stores[2].tensors, "grad.*");
}

TEST(PlanPart, AnEmptyPartChangesNothing) {
  const Plan own = parse_plan(kPlan).value();
  EXPECT_EQ(add_part(own, part_of("")).value(), own);
}

TEST(PlanPart, APartOfAllOfAPlanIsThePlan) {
  const Plan own = parse_plan(kPlan).value();
  EXPECT_EQ(add_part(own, part_of(kPlan)).value(), own);
  EXPECT_EQ(add_part(parse_plan("").value(), part_of(kPlan)).value(), own);
}

TEST(PlanPart, ErrorsNameThePartsLines) {
  EXPECT_TRUE(refused("\nsplit = [\n  { ops = \"*\", dim = \"ffn\", over = \"tq\" },\n]\n")
                  .starts_with("part.toml:3: axis 'tq' is not in the mesh"))
      << refused("\nsplit = [\n  { ops = \"*\", dim = \"ffn\", over = \"tq\" },\n]\n");
  EXPECT_TRUE(refused("meshes = {}\n").starts_with("part.toml:1: "));
  const auto without =
      add_part(parse_plan("mesh = { dp = 2 }\n", "own").value(),
               part_of("split = [\n  { ops = \"*\", dim = \"ffn\", over = \"tp\" },\n]\n"));
  ASSERT_FALSE(without.has_value());
  EXPECT_TRUE(without.error().message.starts_with("part.toml:2: axis 'tp' is not in the mesh"))
      << without.error().message;
}

TEST(PlanPart, GrowsByItsEntries) {
  const PlanPart part = part_of(
      "mesh = { dp = 2 }\n"
      "store = [\n"
      "  { tensors = \"optimizer.*\", over = \"dp\" },\n"
      "  { tensors = \"grad.*\", over = \"dp\" },\n"
      "]\n");
  const auto parts = growing_parts(part);
  ASSERT_EQ(parts.size(), 3U);
  EXPECT_EQ(parts[0].first, 1);
  EXPECT_EQ(parts[1].first, 3);
  EXPECT_EQ(parts[2].first, 4);
  for (size_t i = 0; i < parts.size(); ++i) EXPECT_EQ(parts[i].second.plan.stores.size(), i);
  EXPECT_EQ(parts.back().second.plan, part.plan);
}

}  // namespace
}  // namespace tessera
