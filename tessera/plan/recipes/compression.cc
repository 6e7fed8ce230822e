#include <fmt/format.h>

#include "tessera/base/codec.h"
#include "tessera/plan/recipes/families.h"
#include "tessera/plan/recipes/parts.h"

namespace tessera::recipes {
namespace {

Result<PlanText> emit_compressed(const RecipeArguments& arguments, const Graph& graph) {
  TESSERA_TRY(const Codec codec, parse_codec(arguments.text("with")));
  const int64_t stage = arguments.number("zero");
  if (stage > 3) return invalid_input(fmt::format("expected zero = 0, 1, 2 or 3, found {}", stage));
  PlanText text{.mesh = {{"dp", arguments.number("dp")}}};
  TESSERA_TRY_VOID(data_parallel(text, graph));
  zero(text, stage);
  text.compressed.push_back({{"tensors", "\"role:gradient\""},
                             {"with", fmt::format("\"{}\"", codec_text(codec))},
                             {"error_feedback", "true"}});
  return text;
}

RecipeArgument codec_argument() {
  RecipeArgument argument;
  argument.name = "with";
  argument.otherwise = "int8";
  argument.meaning = "codec: int8, float16, bfloat16, topk:R";
  argument.is_text = true;
  return argument;
}

}  // namespace

std::vector<Recipe> compression_recipes() {
  return {
      {"compressed",
       "data parallel; gradients compressed between ranks, with error feedback (lossy)",
       {dp_argument(std::nullopt), codec_argument(),
        number("zero", "0", "0: nothing sharded at rest; 1, 2 or 3 as zero's stage", 0)},
       emit_compressed},
  };
}

}  // namespace tessera::recipes
