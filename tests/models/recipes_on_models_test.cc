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

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

// Returns a call of two ranks or more, with the arguments that the recipe asks for.
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

// Returns whether the message names something that may be missing or too small: a path, a dim, an
// argument of the call.
bool names_a_part(const std::string& message) {
  for (const char* part : {"blocks", "layers", "dim '", "op '", "heads", "groups", "experts"}) {
    if (message.find(part) != std::string::npos) return true;
  }
  return false;
}

// Returns the graph and plan that run, or the first error on the way.
Result<Prepared> prepared(const Model& model, const std::string& call) {
  TESSERA_TRY(const std::string text, emit_recipe(call, model.graph));
  TESSERA_TRY(const Plan plan, parse_plan(text, call));
  TESSERA_TRY(Graph graph, training_graph(model.graph, plan, plan.precision, OptimizerSpec{}));
  return prepare(std::move(graph), plan);
}

Model model_of(const std::string& spec) {
  auto model = build_model(spec, 8);
  EXPECT_TRUE(model) << model.error().message;
  return model.value_or(Model{});
}

std::string answer(const std::string& call, const std::string& spec) {
  const auto found = prepared(model_of(spec), call);
  return found ? "a plan" : found.error().message;
}

void expect_a_plan_or_a_reason(const Model& model, const std::string& call, int& plans) {
  SCOPED_TRACE(call + " on " + model.spec);
  const auto found = prepared(model, call);
  if (found) {
    ++plans;
    return;
  }
  const std::string& message = found.error().message;
  EXPECT_EQ(message.find('\n'), std::string::npos);
  if (message.starts_with("recipe ")) {
    EXPECT_TRUE(names_a_part(message)) << message;
  } else {  // an op or a tensor of the model does not allow the plan (moe_route sees whole sequences)
    EXPECT_THAT(message, testing::AnyOf(HasSubstr(" op '"), HasSubstr("tensor '")));
    EXPECT_THAT(message, Not(HasSubstr("no op that")));
  }
}

TEST(RecipesOnModels, ApplyOrSayWhatIsMissing) {
  int plans = 0;
  for (const ModelFamily& family : all_families()) {
    for (const std::string& spec : family.examples) {
      const Model model = model_of(spec);
      for (const Recipe& recipe : all_recipes())
        expect_a_plan_or_a_reason(model, call_of(recipe, model.graph), plans);
      for (const char* call :
           {"tensor_parallel(2,sequence_shard=true)", "megatron(cp=2)", "fsdp(2,prefetch=1)",
            "pipeline(2,4,interlaced)", "pipeline(2,4,nf1b)", "recompute(norm)", "recompute(core)",
            "recompute(mlp+act)", "recompute(moe)", "recompute(scan)", "recompute(mla_up)",
            "expert_parallel(2,tp=2)", "expert_parallel(2,tp=2,experts_over_tp=true)"})
        expect_a_plan_or_a_reason(model, call, plans);
    }
  }
  // Most recipes apply to most models.
  EXPECT_GT(plans, 300);
}

TEST(RecipesOnModels, SayWhatIsMissing) {
  const std::string mlp = find_family("mlp")->examples[0];
  const std::string resnet = find_family("resnet")->examples[0];
  EXPECT_EQ(answer("per_layer(\"0-1:tp2\")", mlp),
            "recipe per_layer: expected blocks (ops blocks.<i>, or what repeats in a graph), found "
            "none");
  EXPECT_EQ(answer("ulysses(2)", mlp),
            "recipe ulysses: expected ops blocks.*.attn.core with the dim 'kv', found none");
  EXPECT_EQ(answer("token_pipeline(2,2)", resnet),
            "recipe token_pipeline: expected ops of blocks with the dim 'seq', found none");
  EXPECT_EQ(answer("co_shard(2)", resnet),
            "recipe co_shard: expected ops blocks.*.attn with the dim 'heads' or blocks.*.mlp with "
            "'ffn', found none");
}

// Returns the recipe's text for a model, or its message.
std::string text_for(const std::string& call, const std::string& spec) {
  const auto text = emit_recipe(call, model_of(spec).graph);
  return text ? *text : text.error().message;
}

// Returns the ops of each split entry of a plan, by dim.
std::map<std::string, std::string> cuts(const std::string& text) {
  std::map<std::string, std::string> out;
  const auto plan = parse_plan(text, "plan");
  EXPECT_TRUE(plan) << text;
  if (!plan) return out;
  for (const SplitEntry& entry : plan->splits)
    out[(entry.over.empty() ? "not " : "") + entry.dim] = entry.ops;
  return out;
}

// The cuts of docs/theory/superscaler.md section 8 (dynamic axial parallelism), from the structure.
TEST(RecipesOnModels, RowsAndColumnsAreCutInTurn) {
  const std::string evoformer = "evoformer:layers=2,sequences=5,residues=4";
  // If two entries name an op for one axis, a third entry takes back the first.
  EXPECT_EQ(cuts(text_for("dap(2)", evoformer)),
            (std::map<std::string, std::string>{
                {"s", "{embed,blocks.*.attn.row}"},
                {"r",
                 "{embed.{left_rows,outer_sum,pair_add},blocks.*.{attn.{row.{bias_ln,bias},column,"
                 "start,end.bias},mlp.msa,outer,triangle.outgoing},final.msa_ln,head,"
                 "loss.{cross_entropy,token}}"},
                {"not r", "head.distance"},
                {"r2",
                 "{blocks.*.{attn.{start.bias,end},triangle.incoming,mlp},final,head,"
                 "loss.distance.{cross_entropy,token}}"}}));
  EXPECT_EQ(text_for("dap(5)", evoformer), "recipe dap: dap = 5 is more than r = 4");
}

TEST(RecipesOnModels, OrderTokensOnlyWhereTheModelAllowsIt) {
  for (const char* spec : {"gpt:layers=1,hidden=8,heads=2,seq=8,vocab=7,dropout=0.1",
                           "mixtral:layers=1,hidden=8,heads=2,kv_heads=2,experts=2,seq=8,vocab=7",
                           "nemotron_h:pattern=M*,hidden=8,heads=2,kv_heads=2,seq=8,vocab=7,"
                           "ssm_heads=2,ssm_head_dim=4,ssm_groups=1,state=4,chunk=4"}) {
    for (const char* call : {"ring_attention(2)", "megatron(cp=2)", "ring_ulysses(2, 2)"}) {
      const std::string text = text_for(call, spec);
      EXPECT_THAT(text,
                  HasSubstr("\n# order = none, not zigzag: dim 'seq' cannot be reordered: what "
                            "op '"));
      EXPECT_THAT(text, Not(HasSubstr("reorder = ")));
      EXPECT_EQ(answer(call, spec), "a plan");
    }
  }
  EXPECT_THAT(text_for("ring_attention(2)", "gpt:layers=1,hidden=8,heads=2,seq=8,vocab=7"),
              HasSubstr("reorder = "));
}

// A low-rank factor lies inside the product to whose output it adds: "q.a" under "q".
TEST(RecipesOnModels, RowsOfLowRankFactorsAreCutAsThoseOfOtherProducts) {
  const std::string spec =
      "llama:layers=3,hidden=20,heads=2,kv_heads=2,seq=5,vocab=17,ffn=21,lora=2,lora_mlp=1";
  EXPECT_EQ(answer("tensor_parallel_3d(2, 2, 2)", spec), "a plan");
}

// The recipe works whether the model's layers repeat (six of them) or not (two).
TEST(RecipesOnModels, StepsWalkTheProductsOfAModelWithoutBlocks) {
  for (const char* layers : {"2", "6"}) {
    const std::string text =
        text_for("summa(2)", fmt::format("mlp:in=8,hidden=8,out=4,layers={}", layers));
    for (const char* entry :
         {"layers.0.linear\", +dim = \"in\", +over = \"time:2\"",
          "head}?\", +dim = \"ffn\", +over = \"time:2\"",
          "\"\\*\", +dim = \"ffn\", +over = \"col\"", "\"\\*\", +dim = \"out\", +over = \"col\""})
      EXPECT_THAT(text, ContainsRegex(entry)) << layers;
  }
}

TEST(RecipesOnModels, SlicesOfASequenceNeedCausalAttention) {
  EXPECT_EQ(answer("token_pipeline(2, 2)", find_family("bert")->examples[0]),
            "recipe token_pipeline: expected causal attention, found op 'blocks.0.attn.core' "
            "(attention), whose queries read keys of later slices");
}

TEST(RecipesOnModels, NeedOnlyThePartsThatTheyCut) {
  const std::string mixtral = find_family("mixtral")->examples[0];
  EXPECT_EQ(answer("co_shard(2)", mixtral), "a plan");
  EXPECT_EQ(answer("per_layer(\"0-1:tp2,sp\")", mixtral), "a plan");
  EXPECT_EQ(answer("per_layer(\"0-3:tp2,sp\")", find_family("swin")->examples[0]), "a plan");
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
