// Recipes: functions that emit plan text. A recipe knows a strategy, never how it is lowered. Its
// output is a plan like any other, to be read, edited and compared. A recipe takes only facts from
// the graph (number of blocks, sizes of dims): it finds parts by the paths and dims of the contract
// in docs/reference/models.md, and in a graph without ops blocks.<i> by what repeats in it and by
// dims. An error says which part a model lacks.
//
//   TESSERA_TRY(std::string text, emit_recipe("megatron(tp=2, pp=2, dp=2)", graph));
//   TESSERA_TRY(Plan plan, parse_plan(text, "megatron(tp=2, pp=2, dp=2)"));
//
// A guide to adding a recipe: docs/guides/write-a-plan.md.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/graph/graph.h"

namespace tessera {

struct RecipeArgument {
  std::string name;
  std::optional<std::string> otherwise;  // default; unset: must be given
  std::string meaning;
  int64_t minimum = 1;                    // of a number
  bool is_text = false;                   // a name, not a number
  std::vector<std::string> choices = {};  // of a name; empty: any
  bool joined = false;                    // several choices may be given, with '+' between
  bool by_name = false;                   // only by its name, never by its position
};

// Checks that a text is one of the argument's choices; the error names the nearest choice.
Status check_choice(const RecipeArgument& argument, const std::string& text);

// `RecipeArguments` are the arguments of a call, checked and completed by defaults.
class RecipeArguments {
 public:
  int64_t number(std::string_view name) const;
  const std::string& text(std::string_view name) const;
  bool flag(std::string_view name) const { return text(name) == "true"; }
  std::map<std::string, int64_t, std::less<>> numbers;
  std::map<std::string, std::string, std::less<>> texts;
};

namespace recipes {
struct PlanText;  // under construction (recipes/writer.h)
}

struct Recipe {
  std::string name;
  std::string summary;
  std::vector<RecipeArgument> arguments;  // in order: positional arguments are allowed
  std::function<Result<recipes::PlanText>(const RecipeArguments&, const Graph&)> emit;
};

const std::vector<Recipe>& all_recipes();          // in the order of `tessera plan --list`
const Recipe* find_recipe(std::string_view name);  // null if unknown
std::string signature(const Recipe& recipe);       // "megatron(tp=1, pp=1, …)"
// A `RecipeCall` is a call with every argument, as given or by default.
struct RecipeCall {
  const Recipe* recipe = nullptr;
  RecipeArguments arguments;
};
Result<RecipeCall> parse_recipe_call(std::string_view call_text);
// Returns the call with the arguments that differ from their defaults: "megatron(tp=2, pp=2)".
std::string to_string(const RecipeCall& call);
// Returns the plan text of a call: "name", "name(4)" or "name(tp=2, pp=2)".
Result<std::string> emit_recipe(std::string_view call_text, const Graph& graph);
// Returns the plan text of a call. `heading`: the text's first line.
Result<std::string> emit_recipe(const RecipeCall& call, const Graph& graph,
                                std::string_view heading);
// Sets the call's argument `precision` to the dtype in which the run computes, if that is narrower
// than float32 (graph/precision.h).
void compute_in(DType run, RecipeCall& call);

}  // namespace tessera
