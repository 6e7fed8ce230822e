#include "tessera/plan/recipes.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "tessera/base/check.h"
#include "tessera/base/dtype.h"
#include "tessera/base/text.h"
#include "tessera/graph/precision.h"
#include "tessera/plan/recipe_aliases.h"
#include "tessera/plan/recipes/families.h"
#include "tessera/plan/resolve/selector.h"

namespace tessera {
namespace {

std::vector<Recipe> make_recipes() {
  std::vector<Recipe> all{{"serial", "one rank", {}, [](const RecipeArguments&, const Graph&) {
                             return recipes::PlanText{};
                           }}};
  for (const auto family :
       {recipes::data_parallel_recipes, recipes::tensor_parallel_recipes, recipes::pipeline_recipes,
        recipes::megatron_recipes, recipes::summa_recipes, recipes::tensor_parallel_3d_recipes,
        recipes::per_layer_recipes, recipes::per_op_recipes, recipes::recompute_recipes,
        recipes::expert_recipes, recipes::loop_recipes, recipes::sequence_parallel_recipes,
        recipes::axial_recipes, recipes::spatial_recipes, recipes::split_brain_recipes,
        recipes::table_recipes, recipes::compression_recipes, recipes::offload_recipes}) {
    std::vector<Recipe> more = family();
    all.insert(all.end(), std::make_move_iterator(more.begin()),
               std::make_move_iterator(more.end()));
  }
  for (Recipe& recipe : all) {
    recipe.arguments.push_back(recipes::precision_argument());
    recipe.arguments.push_back(recipes::device_order_argument());
  }
  return all;
}

// ---- calls

std::string unquoted(std::string_view text) {
  if (text.size() >= 2 && (text.front() == '"' || text.front() == '\'') &&
      text.back() == text.front()) {
    text = text.substr(1, text.size() - 2);
  }
  return std::string(text);
}

// Returns the argument of the recipe for the call's argument with this key, or at this position if
// the key is empty.
Result<const RecipeArgument*> meant(const Recipe& recipe, const std::string& key, size_t position) {
  if (key.empty()) {
    if (position < recipe.arguments.size() && !recipe.arguments[position].by_name)
      return &recipe.arguments[position];
    return invalid_input(fmt::format("too many arguments: expected {}", signature(recipe)));
  }
  std::vector<std::string> names;
  for (const RecipeArgument& argument : recipe.arguments) {
    if (argument.name == key) return &argument;
    names.push_back(argument.name);
  }
  const std::string best = nearest(key, names);
  return invalid_input(fmt::format("unknown argument '{}'{}", key,
                                   best.empty() ? ": expected " + signature(recipe)
                                                : fmt::format(", did you mean '{}'?", best)));
}

Status set_argument(RecipeArguments& arguments, const RecipeArgument& argument,
                    const std::string& value) {
  if (argument.is_text) {
    std::string text = unquoted(value);
    if (const auto dtype = parse_dtype(text); dtype && argument.name == "precision")
      text = dtype_name(*dtype);  // people write dtypes in other words, too: bf16
    TESSERA_TRY_VOID(check_choice(argument, text));
    arguments.texts[argument.name] = text;
    return {};
  }
  const auto parsed = parse_int(value);
  if (!parsed || *parsed < argument.minimum) {
    return invalid_input(fmt::format("expected {} >= {} (a whole number), found '{}'",
                                     argument.name, argument.minimum, value));
  }
  arguments.numbers[argument.name] = *parsed;
  return {};
}

Result<RecipeArguments> bind(const Recipe& recipe, const Call& call) {
  RecipeArguments arguments;
  std::set<std::string> given;
  for (size_t i = 0; i < call.arguments.size(); ++i) {
    const auto& [key, value] = call.arguments[i];
    TESSERA_TRY(const RecipeArgument* argument, meant(recipe, key, i));
    if (!given.insert(argument->name).second) {
      return invalid_input(fmt::format("argument '{}' is given twice", argument->name));
    }
    TESSERA_TRY_VOID(set_argument(arguments, *argument, value));
  }
  for (const RecipeArgument& argument : recipe.arguments) {
    if (given.contains(argument.name)) continue;
    if (!argument.otherwise) {
      return invalid_input(
          fmt::format("argument '{}' is missing: expected {}", argument.name, signature(recipe)));
    }
    TESSERA_TRY_VOID(set_argument(arguments, argument, *argument.otherwise));
  }
  return arguments;
}

}  // namespace

Status check_choice(const RecipeArgument& argument, const std::string& text) {
  const auto& choices = argument.choices;
  if (choices.empty()) return {};
  const auto given = argument.joined ? split_text(text, '+') : std::vector<std::string>{text};
  for (const std::string& one : given) {
    if (std::find(choices.begin(), choices.end(), one) != choices.end()) continue;
    const std::string best = nearest(one, choices);
    const std::string expected = argument.joined
                                     ? "one of " + join(choices, ", ") + ", or several with '+'"
                                     : join(choices, " or ");
    return invalid_input(
        fmt::format("expected {} = {}, found '{}'{}", argument.name, expected, one,
                    best.empty() ? "" : fmt::format(", did you mean '{}'?", best)));
  }
  return {};
}

int64_t RecipeArguments::number(std::string_view name) const {
  const auto it = numbers.find(name);
  TESSERA_CHECK(it != numbers.end(), "the recipe has no number '{}'", name);
  return it->second;
}

const std::string& RecipeArguments::text(std::string_view name) const {
  const auto it = texts.find(name);
  TESSERA_CHECK(it != texts.end(), "the recipe has no text '{}'", name);
  return it->second;
}

const std::vector<Recipe>& all_recipes() {
  static const std::vector<Recipe> recipes = make_recipes();
  return recipes;
}

const Recipe* find_recipe(std::string_view name) {
  if (const RecipeAlias* alias = find_recipe_alias(name); alias != nullptr) name = alias->recipe;
  for (const Recipe& recipe : all_recipes()) {
    if (recipe.name == name) return &recipe;
  }
  return nullptr;
}

std::string signature(const Recipe& recipe) {
  std::vector<std::string> parts;
  for (const RecipeArgument& argument : recipe.arguments) {
    if (argument.otherwise == "") continue;  // written only if given
    parts.push_back(argument.otherwise ? fmt::format("{}={}", argument.name, *argument.otherwise)
                                       : argument.name);
  }
  return fmt::format("{}({})", recipe.name, join(parts, ", "));
}

namespace {

// Returns the arguments of a recipe that a call may give by position. The recipe must be known.
std::vector<std::string> positions_of(std::string_view name) {
  const Recipe* recipe = find_recipe(name);
  TESSERA_CHECK(recipe != nullptr, "an alias is of the recipe '{}', which is unknown", name);
  std::vector<std::string> out;
  for (const RecipeArgument& argument : recipe->arguments) {
    if (!argument.by_name) out.push_back(argument.name);
  }
  return out;
}

}  // namespace

Result<RecipeCall> parse_recipe_call(std::string_view call_text) {
  TESSERA_TRY(Call given, parse_call(call_text));
  TESSERA_TRY(const Call call, without_alias(std::move(given), positions_of));
  RecipeCall out;
  out.recipe = find_recipe(call.name);
  if (out.recipe == nullptr) {
    std::vector<std::string> names;
    for (const RecipeAlias& alias : recipe_aliases()) names.push_back(alias.name);
    for (const Recipe& known : all_recipes()) names.push_back(known.name);
    return invalid_input(fmt::format("unknown recipe '{}', did you mean '{}'?", call.name,
                                     nearest(call.name, names)));
  }
  auto arguments = bind(*out.recipe, call);
  if (!arguments) {
    return invalid_input(fmt::format("recipe {}: {}", out.recipe->name, arguments.error().message));
  }
  out.arguments = std::move(*arguments);
  return out;
}

std::string to_string(const RecipeCall& call) {
  std::vector<std::string> parts;
  for (const RecipeArgument& argument : call.recipe->arguments) {
    const std::string value = argument.is_text
                                  ? call.arguments.text(argument.name)
                                  : std::to_string(call.arguments.number(argument.name));
    if (argument.otherwise == value) continue;
    const char* quote = value.find_first_of(",()") != std::string::npos ? "\"" : "";
    parts.push_back(fmt::format("{0}={1}{2}{1}", argument.name, quote, value));
  }
  return fmt::format("{}({})", call.recipe->name, join(parts, ", "));
}

void compute_in(DType run, RecipeCall& call) {
  if (run != storage_dtype(run)) call.arguments.texts["precision"] = std::string(dtype_name(run));
}

Result<std::string> emit_recipe(const RecipeCall& call, const Graph& graph,
                                std::string_view heading) {
  auto text = call.recipe->emit(call.arguments, graph);
  if (!text) {
    text.error().message = fmt::format("recipe {}: {}", call.recipe->name, text.error().message);
    return tl::unexpected(std::move(text.error()));
  }
  text->compute_in(call.arguments.text("precision"));
  text->device_order = call.arguments.text("device_order");
  return fmt::format("# {}\n{}", trim(heading), text->str());
}

Result<std::string> emit_recipe(std::string_view call_text, const Graph& graph) {
  TESSERA_TRY(const RecipeCall call, parse_recipe_call(call_text));
  return emit_recipe(call, graph, call_text);
}

}  // namespace tessera
