// Recipes whose plans have a time loop over a group of ops or over all ops.
#include <fmt/format.h>

#include "tessera/base/text.h"
#include "tessera/graph/kinds.h"
#include "tessera/plan/recipes/families.h"
#include "tessera/plan/recipes/parts.h"

namespace tessera::recipes {
namespace {

// Returns the keys of a loop entry for the slices, which are given as their number, "4", or as
// their sizes, "24+16+16+8". The sizes must add up to seq.
Result<std::string> slices_text(const std::string& slices, int64_t seq) {
  if (seq == 0) return invalid_input("expected ops of blocks with the dim 'seq', found none");
  std::string list = slices;
  for (char& c : list) {
    if (c == '+') c = ' ';
  }
  std::vector<std::string> sizes;
  int64_t sum = 0;
  for (const std::string& item : split_text(list, ' ')) {
    if (item.empty()) continue;
    const auto size = parse_int(item);
    if (!size || *size < 1) {
      return invalid_input(fmt::format(
          "expected slices = a number, or sizes like \"24+16+16+8\", found '{}'", slices));
    }
    // Larger sums are errors, so the sum is capped at seq + 1.
    sum = *size > seq ? seq + 1 : std::min(sum + *size, seq + 1);
    sizes.push_back(item);
  }
  if (sizes.size() == 1 && sum <= seq) return fmt::format("steps = {}", sizes[0]);
  if (sum != seq) {
    return invalid_input(fmt::format(
        "expected slices that add up to seq = {} (or their number), found '{}'", seq, slices));
  }
  return fmt::format("sizes = [{}]", join(sizes, ", "));
}

// Checks that every op with the dim seq can be computed slice by slice.
Status check_slices(const Graph& graph) {
  for (const Op& op : graph.ops()) {
    const int dim = op.phase == Phase::kForward ? op.annotation.find("seq") : -1;
    if (dim < 0) continue;
    if (const Status may = check_loopable(op, dim); !may) {
      return invalid_input(
          fmt::format("expected ops that take slices of 'seq' one after the other, found op '{}' "
                      "({}), which {}",
                      op.path, op.kind, may.error().message));
    }
  }
  return {};
}

Result<PlanText> emit_token_pipeline(const RecipeArguments& arguments, const Graph& graph) {
  const int64_t pp = arguments.number("pp");
  const std::string& schedule = arguments.text("schedule");
  if (schedule != "token" && schedule != "token_1f1b") {
    return invalid_input(
        fmt::format("expected schedule = token or token_1f1b, found '{}'", schedule));
  }
  TESSERA_TRY(const std::string slices,
              slices_text(arguments.text("slices"), size_of(graph, ops_with(graph, "seq"), "seq")));
  if (pp > 1) TESSERA_TRY_VOID(check_causal(graph));
  TESSERA_TRY_VOID(check_slices(graph));
  TESSERA_TRY_VOID(check_zero(arguments));
  PlanText text{
      .mesh = {{"pp", pp}, {"dp", arguments.number("dp")}, {"tp", arguments.number("tp")}},
      .micro_batches = arguments.number("micro_batches")};
  TESSERA_TRY_VOID(pipeline(text, graph, pp, schedule));
  TESSERA_TRY_VOID(recompute(text, graph, arguments.text("recompute")));
  TESSERA_TRY_VOID(data_parallel(text, graph));
  TESSERA_TRY_VOID(tensor_parallel(text, graph));
  text.loop("*", "seq", slices + (pp > 1 ? ", stages = true" : ""));
  if (pp == 1) text.schedule.clear();
  zero(text, arguments.number("zero"));
  return text;
}

Result<PlanText> emit_co_shard(const RecipeArguments& arguments, const Graph& graph) {
  const int64_t tp = arguments.number("tp"), steps = arguments.number("steps");
  PlanText text{.mesh = {{"dp", arguments.number("dp")}, {"tp", tp}}};
  TESSERA_TRY_VOID(data_parallel(text, graph));
  TESSERA_TRY_VOID(tensor_parallel(text, graph));
  const std::string attention = scope_with(graph, "attn", "heads");
  const std::string mlp = scope_with(graph, "mlp", "ffn");
  if (attention.empty() && mlp.empty()) {
    return invalid_input(
        "expected ops blocks.*.attn with the dim 'heads' or blocks.*.mlp with 'ffn', found none");
  }
  const std::string how = fmt::format("steps = {}, recompute = true", steps);
  if (!attention.empty() && steps > 1) {
    TESSERA_TRY(const std::string heads, heads_dim(graph, "tp * steps", tp * steps));
    text.loop(attention, heads, how);
  }
  if (!mlp.empty() && steps > 1) text.loop(mlp, "ffn", how);
  return text;
}

Result<PlanText> emit_chimera(const RecipeArguments& arguments, const Graph& graph) {
  const int64_t pp = arguments.number("pp");
  PlanText text{.mesh = {{"pp", pp}, {"dp", arguments.number("dp")}}};
  TESSERA_TRY_VOID(pipeline(text, graph, pp, "chimera"));
  TESSERA_TRY_VOID(data_parallel(text, graph));
  return text;
}

}  // namespace

Status check_causal(const Graph& graph) {
  for (const Op& op : graph.ops()) {
    const auto dims = op.phase == Phase::kForward ? query_key_of(op) : std::nullopt;
    if (!dims || op.annotation.dims[static_cast<size_t>(dims->key)].causal_of >= 0) continue;
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      const OperandDims& operand = op.annotation.inputs[i];
      for (size_t t = 0; t < operand.dims.size(); ++t) {
        if (operand.dims[t] == DimGroup{dims->key} &&
            graph.tensor(op.inputs[i]).dims[t].name == "seq") {
          return invalid_input(fmt::format(
              "expected causal attention, found op '{}' ({}), whose queries read keys of later "
              "slices",
              op.path, op.kind));
        }
      }
    }
  }
  return {};
}

std::vector<Recipe> loop_recipes() {
  return {
      {"token_pipeline",
       "pipeline of slices of one sequence; attention must be causal",
       {pp_argument(std::nullopt),
        {"slices", std::nullopt, "number of slices, or their sizes: \"24+16+16+8\"", 0, true},
        micro_batches_argument("1"),
        {"schedule", "token", "token (all forwards first) or token_1f1b", 0, true},
        dp_argument("1"),
        tp_argument("1"),
        number("zero", "0", "0, or what is sharded over the replicas at rest: see zero", 0),
        recompute_argument()},
       emit_token_pipeline},
      {"co_shard",
       "attention and MLP in steps over heads and ffn, each recomputed: less memory",
       {number("steps", std::nullopt, "steps over heads and over ffn"), tp_argument("1"),
        dp_argument("1")},
       emit_co_shard},
      {"chimera",
       "two pipelines in opposite directions, half of the batch each; pp even",
       {pp_argument(std::nullopt), dp_argument("1")},
       emit_chimera},
  };
}

}  // namespace tessera::recipes
