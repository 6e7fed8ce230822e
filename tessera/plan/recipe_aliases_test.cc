#include "tessera/plan/recipe_aliases.h"

#include <gtest/gtest.h>

#include "tessera/plan/recipes.h"
#include "tessera/plan/test_graphs.h"

namespace tessera {
namespace {

std::string call_of(std::string_view text) {
  const auto call = parse_recipe_call(text);
  return call ? to_string(*call) : call.error().message;
}

TEST(RecipeAliases, StandForRecipesWithArguments) {
  EXPECT_EQ(call_of("ddp(8)"), "data_parallel(dp=8)");
  EXPECT_EQ(call_of("ddp(dp=8, micro_batches=2)"), "data_parallel(dp=8, micro_batches=2)");
  EXPECT_EQ(call_of("zero1(8)"), "zero(stage=1, dp=8)");
  EXPECT_EQ(call_of("zero2(8, 4)"), "zero(stage=2, dp=8, micro_batches=4)");
  EXPECT_EQ(call_of("zero3(dp=8)"), "zero(stage=3, dp=8)");
  EXPECT_EQ(call_of("fsdp2(8)"), "fsdp(dp=8)");
  EXPECT_EQ(call_of("hsdp(8, 4)"), "fsdp(dp=8, replicas=4)");
  EXPECT_EQ(call_of("tp(4, sequence_shard=true)"), "tensor_parallel(tp=4, sequence_shard=true)");
}

TEST(RecipeAliases, ErrorsSayWhatIsMissingAndNameTheNearestAliasFirst) {
  EXPECT_EQ(call_of("zero3(stage=2, dp=8)"),
            "recipe zero3 (zero with stage=3): the argument 'stage' is set already");
  EXPECT_EQ(call_of("hsdp(8)"),
            "recipe hsdp (fsdp with its own arguments): argument 'replicas' is missing, as "
            "hsdp(dp=4, replicas=2)");
  EXPECT_EQ(call_of("dddp(8)"), "unknown recipe 'dddp', did you mean 'ddp'?");
  EXPECT_EQ(call_of("zero4(8)"), "unknown recipe 'zero4', did you mean 'zero1'?");
  EXPECT_EQ(call_of("megatrom(tp=2)"), "unknown recipe 'megatrom', did you mean 'megatron'?");
}

// An alias must be of a recipe, set arguments that the recipe has, and be no recipe's name.
TEST(RecipeAliases, TheProgramsTableGoesWithItsRecipes) {
  for (const RecipeAlias& alias : recipe_aliases()) {
    const Recipe* recipe = find_recipe(alias.recipe);
    ASSERT_NE(recipe, nullptr) << alias.name;
    EXPECT_EQ(find_recipe(alias.name), recipe);
    for (const Recipe& known : all_recipes()) EXPECT_NE(known.name, alias.name);
    const auto has = [&](const std::string& name) {
      return std::any_of(recipe->arguments.begin(), recipe->arguments.end(),
                         [&](const RecipeArgument& argument) { return argument.name == name; });
    };
    for (const auto& [key, value] : alias.set) EXPECT_TRUE(has(key)) << alias.name << key;
    for (const std::string& key : alias.needs) EXPECT_TRUE(has(key)) << alias.name << key;
  }
}

TEST(RecipeAliases, EmitThePlanOfTheirRecipe) {
  const Graph graph = test_transformer();
  const auto body = [&](const char* call) {
    const auto text = emit_recipe(call, graph);
    EXPECT_TRUE(text.has_value()) << call;
    return text ? text->substr(text->find('\n')) : "";
  };
  EXPECT_EQ(body("zero3(4)"), body("zero(stage=3, dp=4)"));
  EXPECT_EQ(body("fsdp(4)"), body("fsdp(4, prefetch=1)"));
  EXPECT_NE(body("fsdp(4)"), body("fsdp(4, prefetch=0)"));
}

}  // namespace
}  // namespace tessera
