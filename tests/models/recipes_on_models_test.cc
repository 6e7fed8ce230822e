// Every recipe on the examples of every model family: it writes a plan that applies to the model,
// or it says in one line which part the model lacks.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "tessera/base/text.h"
#include "tessera/graph/transform.h"
#include "tessera/models/contract.h"
#include "tessera/models/families.h"
#include "tessera/plan/plan.h"
#include "tessera/plan/recipes.h"
#include "tessera/plan/recipes/writer.h"

namespace tessera {
namespace {

// A call of two ranks or more with what the recipe asks for.
std::string call_of(const Recipe& recipe, const Graph& graph) {
  const int64_t last = std::max<int64_t>(recipes::block_count(graph), 1) - 1;
  const std::map<std::string, std::string> texts = {
      {"slices", "2"},
      {"mesh", "\"a2\""},
      {"spec", recipe.name == "per_op" ? "\"*=batch:a;loss=batch:a\""
                                       : fmt::format("\"0-{}:tp2,sp\"", last)}};
  std::vector<std::string> arguments;
  for (const RecipeArgument& argument : recipe.arguments) {
    if (argument.otherwise) continue;
    const std::string value = argument.is_text           ? texts.at(argument.name)
                              : argument.name == "stage" ? "3"
                                                         : "2";
    arguments.push_back(argument.name + "=" + value);
  }
  if (recipe.name == "recompute") arguments.push_back("recompute=selective");
  return fmt::format("{}({})", recipe.name, join(arguments, ", "));
}

// What a message may name as missing or too small: a path, a dim, an argument of the call.
bool names_a_part(const std::string& message) {
  for (const char* part : {"blocks", "dim '", "heads", "groups", "experts"}) {
    if (message.find(part) != std::string::npos) return true;
  }
  return false;
}

void expect_a_plan_or_a_reason(const std::string& spec, const Graph& forward, const Graph& training,
                               const std::string& call, int& plans) {
  SCOPED_TRACE(call + " on " + spec);
  const auto text = emit_recipe(call, forward);
  if (!text) {
    EXPECT_TRUE(names_a_part(text.error().message)) << text.error().message;
    EXPECT_EQ(text.error().message.find('\n'), std::string::npos);
    return;
  }
  const auto plan = parse_plan(*text, call);
  ASSERT_TRUE(plan) << plan.error().message << '\n' << *text;
  const auto resolved = resolve(*plan, training);
  EXPECT_TRUE(resolved) << resolved.error().message << '\n' << *text;
  ++plans;
}

TEST(RecipesOnModels, ApplyOrSayWhatIsMissing) {
  int plans = 0;
  for (const ModelFamily& family : all_families()) {
    for (const std::string& spec : family.examples) {
      const auto model = build_model(spec, 8);
      ASSERT_TRUE(model) << model.error().message;
      const auto training = differentiate(model->graph, OptimizerSpec{});
      ASSERT_TRUE(training) << training.error().message;
      for (const Recipe& recipe : all_recipes())
        expect_a_plan_or_a_reason(spec, model->graph, *training, call_of(recipe, model->graph),
                                  plans);
      for (const char* call :
           {"tensor_parallel(2,sequence_shard=true)", "megatron(cp=2)", "fsdp(2,prefetch=1)",
            "pipeline(2,4,interlaced)", "pipeline(2,4,nf1b)", "recompute(norm)", "recompute(core)",
            "recompute(mlp+act)", "recompute(moe)", "recompute(scan)", "recompute(mla_up)",
            "expert_parallel(2,tp=2)"})
        expect_a_plan_or_a_reason(spec, model->graph, *training, call, plans);
    }
  }
  // Most recipes apply to most models.
  EXPECT_GT(plans, 300);
}

TEST(Contract, NamesRecipesThatThereAre) {
  for (const ContractClause& clause : contract()) {
    EXPECT_FALSE(clause.recipes.empty()) << clause.name;
    for (const std::string& name : clause.recipes)
      EXPECT_NE(find_recipe(name), nullptr) << clause.name << ": " << name;
  }
}

}  // namespace
}  // namespace tessera
