#include <fmt/format.h>

#include "tessera/base/codec.h"
#include "tessera/plan/recipes/families.h"
#include "tessera/plan/recipes/parts.h"

namespace tessera::recipes {
namespace {

Result<PlanText> emit_compressed(const RecipeArguments& arguments, const Graph& graph) {
  TESSERA_TRY(const Codec codec, parse_codec(arguments.text("with")));
  TESSERA_TRY(PlanText text, outer(arguments, graph, {{"tp", arguments.number("tp")}}));
  TESSERA_TRY_VOID(data_parallel(text, graph));
  TESSERA_TRY_VOID(tensor_parallel(text, graph, arguments.flag("sequence_shard")));
  zero(text, arguments.number("zero"));
  text.compressed.push_back({{"tensors", "\"role:gradient\""},
                             {"with", fmt::format("\"{}\"", codec_text(codec))},
                             {"error_feedback", "true"}});
  const std::string& borders = arguments.text("borders");
  if (borders == "none") return text;
  if (!text.has("pp"))
    return invalid_input(fmt::format("borders = {} needs stages: expected pp > 1", borders));
  TESSERA_TRY(const Codec sent, parse_codec(borders));
  text.compressed.push_back({{"tensors", "\"*\""},
                             {"on", "\"send\""},
                             {"with", fmt::format("\"{}\"", codec_text(sent))}});
  return text;
}

RecipeArgument codec_argument(std::string name, std::string otherwise, std::string meaning) {
  RecipeArgument argument;
  argument.name = std::move(name);
  argument.otherwise = std::move(otherwise);
  argument.meaning = std::move(meaning);
  argument.is_text = true;
  return argument;
}

}  // namespace

std::vector<Recipe> compression_recipes() {
  return {
      {"compressed",
       "gradients compressed between replicas, with error feedback (lossy); what stages send, too",
       {dp_argument(std::nullopt),
        codec_argument("with", "int8",
                       "codec of gradients: int8, int4, float16, bfloat16, topk:R, dct:K"),
        number("zero", "0", "0: nothing sharded at rest; 1, 2 or 3 as zero's stage", 0),
        tp_argument("1"), pp_argument("1"), micro_batches_argument("1"), schedule_argument(),
        chunks_argument(), recompute_argument(),
        flag("sequence_shard", false, "between the split ops, seq over tp"),
        codec_argument("borders", "none", "codec of what stages send to one another, or none")},
       emit_compressed},
  };
}

}  // namespace tessera::recipes
