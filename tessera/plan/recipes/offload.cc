// The recipe for tensors that rest on the host or on disk (docs/strategies/offload.md), as in
// ZeRO-Offload, ZeRO-Infinity and the static shares of Gemini.
#include <fmt/format.h>

#include <charconv>

#include "tessera/plan/recipes/families.h"
#include "tessera/plan/recipes/parts.h"

namespace tessera::recipes {
namespace {

// Returns the text of an argument that must be a number from 0 to 1, in canonical form.
Result<std::string> share(const RecipeArguments& arguments, std::string_view name) {
  const std::string& text = arguments.text(name);
  double value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value >= 0 && value <= 1)) {
    return invalid_input(fmt::format("expected {} = a number from 0 to 1, found '{}'", name, text));
  }
  return fmt::format("{}", value);
}

Result<PlanText> emit_offload(const RecipeArguments& arguments, const Graph& graph) {
  const int64_t stage = arguments.number("zero");
  if (stage > 3) return invalid_input(fmt::format("expected zero = 0, 1, 2 or 3, found {}", stage));
  TESSERA_TRY(const std::string optimizer, share(arguments, "optimizer"));
  TESSERA_TRY(const std::string parameters, share(arguments, "parameters"));
  const std::string& to = arguments.text("to");
  PlanText text{.mesh = {{"dp", arguments.number("dp")}},
                .micro_batches = arguments.number("micro_batches")};
  TESSERA_TRY_VOID(data_parallel(text, graph));
  zero(text, stage);
  if (optimizer != "0") text.rest_in("optimizer.*", to, optimizer);
  if (optimizer != "0" && stage < 3) {
    // A parameter rests on the tier of its optimizer state, and the device gets the new values once
    // a training step.
    if (stage > 0 && text.has("dp")) {
      text.store("role:parameter", "dp");
      text.keep("role:parameter", "step");
    }
    text.rest_in("role:parameter", to, optimizer, "step");
  }
  if (parameters != "0") {
    text.rest_in("role:parameter", to, parameters, "block");
    if (const Blocks blocks(graph); blocks.count() > 0) text.prefetch = blocks.each();
  }
  if (arguments.flag("gradients")) text.rest_in("role:gradient", "host", "1");
  if (arguments.flag("activations")) text.rest_in("role:activation", "host", "1");
  TESSERA_TRY_VOID(recompute(text, graph, arguments.text("recompute")));
  return text;
}

RecipeArgument fraction(std::string name, std::string otherwise, std::string meaning) {
  RecipeArgument out = number(std::move(name), std::move(otherwise), std::move(meaning));
  out.is_text = true;
  return out;
}

}  // namespace

std::vector<Recipe> offload_recipes() {
  return {
      {"offload",
       "optimizer state, gradients, parameters, activations at rest on the host or on disk",
       {dp_argument("1"), number("zero", "1", "0, or what is sharded over dp at rest: see zero", 0),
        fraction("optimizer", "1", "share of the optimizer state, 0 to 1; updated on the host"),
        flag("gradients", false, "gradients are accumulated on the host"),
        fraction("parameters", "0", "share of the parameters, 0 to 1; fetched for each use"),
        flag("activations", false, "what the backward pass reads waits on the host"),
        choice("to", "host", {"host", "disk"}, "where optimizer state and parameters rest"),
        micro_batches_argument("1"), recompute_argument()},
       emit_offload},
  };
}

}  // namespace tessera::recipes
