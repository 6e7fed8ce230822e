// tessera plan: the recipes, and the plan text that a call of one emits.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "tessera/base/text.h"
#include "tessera/cli/cli.h"
#include "tessera/cli/output.h"
#include "tessera/models/families.h"
#include "tessera/models/model.h"
#include "tessera/plan/load.h"
#include "tessera/plan/recipes.h"

namespace tessera::cli {
namespace {

using Json = nlohmann::ordered_json;

struct PlanOptions {
  std::string subject, model, cluster, planner, out;
  bool list = false, json = false;
};

Json recipe_json(const Recipe& recipe) {
  Json arguments = Json::array();
  for (const RecipeArgument& argument : recipe.arguments) {
    Json item{{"name", argument.name}, {"default", nullptr}, {"meaning", argument.meaning}};
    if (argument.otherwise && argument.is_text) item["default"] = *argument.otherwise;
    if (argument.otherwise && !argument.is_text) {
      item["default"] = parse_int(*argument.otherwise).value_or(0);
    }
    arguments.push_back(std::move(item));
  }
  return {{"name", recipe.name}, {"summary", recipe.summary}, {"arguments", std::move(arguments)}};
}

std::string recipe_text(const Recipe& recipe) {
  std::string out = fmt::format("{}\n    {}\n", signature(recipe), recipe.summary);
  for (const RecipeArgument& argument : recipe.arguments) {
    out +=
        fmt::format("      {:<14} {:<9} {}\n", argument.name,
                    argument.otherwise ? "= " + *argument.otherwise : "required", argument.meaning);
  }
  return out;
}

int list_recipes(bool json) {
  if (json) {
    Json list = Json::array();
    for (const Recipe& recipe : all_recipes()) list.push_back(recipe_json(recipe));
    return print(Json{{"recipes", std::move(list)}}.dump() + "\n");
  }
  std::string out;
  for (const Recipe& recipe : all_recipes()) out += (out.empty() ? "" : "\n") + recipe_text(recipe);
  out +=
      "\nExample: tessera plan 'megatron(tp=2,pp=2)' --model "
      "gpt:layers=4,hidden=64,heads=4,seq=32\n";
  return print(out);
}

Status check_is_recipe(const PlanOptions& options) {
  const std::string name = options.subject.substr(0, options.subject.find_first_of("(:"));
  const bool is_model = options.subject.find(':') < options.subject.find('(') ||
                        options.subject.find(".json") != std::string::npos ||
                        names_graph_file(options.subject) || find_family(name) != nullptr;
  if (!options.cluster.empty() || !options.planner.empty() || is_model) {
    return invalid_input(
        "plan: planners are not built yet; give a recipe call and --model (tessera plan --list)");
  }
  if (options.subject.empty()) {
    return invalid_input(
        "plan: expected --list, or a recipe call and --model (tessera plan --help)");
  }
  if (names_plan_file(options.subject)) {
    return invalid_input(fmt::format("plan: '{}' is a plan file already; tessera inspect shows it",
                                     options.subject));
  }
  if (options.model.empty()) {
    return invalid_input(fmt::format(
        "plan: expected --model for '{}': recipes read sizes from the model", options.subject));
  }
  return {};
}

Result<int> emit(const PlanOptions& options) {
  TESSERA_TRY_VOID(check_is_recipe(options));
  TESSERA_TRY(const int64_t batch, batch_of(options.model, 0, 1));
  TESSERA_TRY(const Model model, build_model(options.model, batch));
  TESSERA_TRY(const PlanText text, load_plan_text(options.subject, model.graph));
  TESSERA_TRY(const Plan plan, parse_plan(text.text, text.file));
  if (!options.out.empty()) {
    TESSERA_TRY_VOID(write_file(options.out, text.text));
    return 0;
  }
  if (!options.json) return print(text.text);
  return print(Json{{"recipe", options.subject},
                    {"model", model.spec},
                    {"ranks", plan.ranks()},
                    {"text", text.text}}
                   .dump() +
               "\n");
}

}  // namespace

void add_plan(Commands& commands) {
  const auto options = std::make_shared<PlanOptions>();
  Command command = commands.add("plan", "List the recipes, or print the plan of one");
  command.option("RECIPE", options->subject, "Recipe call, as 'zero(stage=1,dp=4)'");
  command.flag("--list", options->list, "Recipes with their arguments, defaults and meaning");
  command.option("--model", options->model, "MODEL for which the recipe emits a plan");
  command.option("--out", options->out, "Write the plan to this file, not to the terminal");
  command.flag("--json", options->json, "Print JSON");
  command.option("--cluster", options->cluster, "For planners, which are not built yet");
  command.option("--planner", options->planner, "For planners, which are not built yet");
  command.footer(
      "Example:\n  tessera plan 'megatron(tp=2,dp=2)' --model gpt:layers=4,hidden=128,heads=4 "
      "--out plan.toml\n");
  command.action([options]() -> Result<int> {
    if (options->list) return list_recipes(options->json);
    return emit(*options);
  });
}

}  // namespace tessera::cli
