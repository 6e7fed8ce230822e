// Every recipe on the examples of every model family: it writes a plan that applies to the model,
// or one line says which part the model lacks, or which of its ops does not allow the plan.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "tessera/base/text.h"
#include "tessera/models/contract.h"
#include "tessera/models/families.h"
#include "tessera/plan/plan.h"
#include "tessera/plan/prepare.h"
#include "tessera/plan/recipes.h"
#include "tessera/plan/recipes/writer.h"

namespace tessera {
namespace {

using testing::HasSubstr;

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

void expect_a_plan_or_a_reason(const Model& model, const std::string& call, int& plans) {
  SCOPED_TRACE(call + " on " + model.spec);
  const auto text = emit_recipe(call, model.graph);
  if (!text) {
    EXPECT_TRUE(names_a_part(text.error().message)) << text.error().message;
    EXPECT_EQ(text.error().message.find('\n'), std::string::npos);
    return;
  }
  const auto plan = parse_plan(*text, call);
  ASSERT_TRUE(plan) << plan.error().message << '\n' << *text;
  const auto prepared =
      training_graph(model.graph, *plan, plan->precision, OptimizerSpec{})
          .and_then([&](Graph graph) { return prepare(std::move(graph), *plan); });
  if (!prepared) {  // an op of the model does not allow it (moe_route sees whole sequences)
    EXPECT_THAT(prepared.error().message, HasSubstr(" op '"));
    return;
  }
  ++plans;
}

TEST(RecipesOnModels, ApplyOrSayWhatIsMissing) {
  int plans = 0;
  for (const ModelFamily& family : all_families()) {
    for (const std::string& spec : family.examples) {
      const auto model = build_model(spec, 8);
      ASSERT_TRUE(model) << model.error().message;
      for (const Recipe& recipe : all_recipes())
        expect_a_plan_or_a_reason(*model, call_of(recipe, model->graph), plans);
      for (const char* call :
           {"tensor_parallel(2,sequence_shard=true)", "megatron(cp=2)", "fsdp(2,prefetch=1)",
            "pipeline(2,4,interlaced)", "pipeline(2,4,nf1b)", "recompute(norm)", "recompute(core)",
            "recompute(mlp+act)", "recompute(moe)", "recompute(scan)", "recompute(mla_up)",
            "expert_parallel(2,tp=2)"})
        expect_a_plan_or_a_reason(*model, call, plans);
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
