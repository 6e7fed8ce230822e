// Recipes: functions that emit the text of a plan for one strategy. A recipe does not know how its
// strategy is lowered. Its output is a plan like any other, which users may read, edit and compare.
// A recipe takes only facts from the graph (number of blocks, sizes of dims). It finds the parts of
// a model by the paths and dims of the contract in docs/reference/models.md. In a graph without ops
// blocks.<i> it finds them by dims and by the ops that repeat. If a model lacks a part, the error
// says which.
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
  std::optional<std::string> otherwise;  // the default; unset: the argument must be given
  std::string meaning;
  int64_t minimum = 1;                    // the least value of a number
  bool is_text = false;                   // the value is a name, not a number
  std::vector<std::string> choices = {};  // the values that a name may have; empty: any
  bool joined = false;                    // the value may be several choices, joined by '+'
  bool by_name = false;                   // given only by its name, never by its position
};

// Checks that `text` is one of the argument's choices. The error names the nearest choice.
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
struct PlanText;  // a plan under construction (recipes/writer.h)
}

struct Recipe {
  std::string name;
  std::string summary;
  std::vector<RecipeArgument> arguments;  // in the order in which a call may give them by position
  std::function<Result<recipes::PlanText>(const RecipeArguments&, const Graph&)> emit;
};

const std::vector<Recipe>& all_recipes();          // in the order of `tessera plan --list`
const Recipe* find_recipe(std::string_view name);  // by name or alias; null if unknown
std::string signature(const Recipe& recipe);       // "megatron(tp=1, pp=1, …)"
// A `RecipeCall` is a recipe with the values of all its arguments, given or default.
struct RecipeCall {
  const Recipe* recipe = nullptr;
  RecipeArguments arguments;
};
Result<RecipeCall> parse_recipe_call(std::string_view call_text);
// Returns the text of the call, without arguments that equal their defaults:
// "megatron(tp=2, pp=2)".
std::string to_string(const RecipeCall& call);
// Returns the plan text of a call: "name", "name(4)", "name(tp=2, pp=2)", or an alias, "ddp(4)".
Result<std::string> emit_recipe(std::string_view call_text, const Graph& graph);
// Returns the plan text of a call. `heading`: the text's first line.
Result<std::string> emit_recipe(const RecipeCall& call, const Graph& graph,
                                std::string_view heading);
// Sets the call's argument `precision` to `run`, the dtype in which the run computes, if `run` is
// narrower than float32 (graph/precision.h); else changes nothing.
void compute_in(DType run, RecipeCall& call);

}  // namespace tessera
