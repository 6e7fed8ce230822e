#include "tessera/plan/recipes/parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tessera::recipes {
namespace {

constexpr const char* kGroups = "reshard_after_forward";

}  // namespace

Status data_parallel(PlanText& text, const Graph& graph, const std::string& over) {
  const size_t before = text.splits.size();
  text.split("*", "batch", over);
  if (text.splits.size() == before || has_dim(graph, "*", "batch")) return {};
  return invalid_input("expected ops with the dim 'batch', found none");
}

void zero(PlanText& text, int64_t stage, const std::string& over) {
  if (stage >= 1) text.store("optimizer.*", over);
  if (stage >= 2) text.store("role:gradient", over);
  if (stage >= 3) text.store("role:parameter", over);
}

Result<Axes> dp_groups(const RecipeArguments& arguments, bool sharded, std::string_view needed) {
  const int64_t dp = arguments.number("dp"), group = arguments.number(kGroups);
  if (group == 0) return Axes{{"dp", dp}};
  if (!sharded) {
    return invalid_input(
        fmt::format("reshard_after_forward = {} needs {}, as other parameters do "
                    "not rest in shards",
                    group, needed));
  }
  if (group == 1 || dp % group != 0) {
    return invalid_input(fmt::format(
        "expected reshard_after_forward = 0, or 2 or more that divides dp = {}, found {}", dp,
        group));
  }
  return Axes{{"groups", dp / group}, {"dp", group}};
}

void keep_in_groups(PlanText& text) {
  if (text.has("groups")) text.keep_over("role:parameter", "dp");
}

RecipeArgument groups_argument() {
  return number(kGroups, "0",
                "ranks of the groups that keep parameters in shards for the backward pass; 0: all",
                0);
}

Status check_zero(const RecipeArguments& arguments) {
  const int64_t zero = arguments.number("zero");
  if (zero <= 3) return {};
  return invalid_input(fmt::format("expected zero = 0, 1, 2 or 3, found {}", zero));
}

Result<std::string> heads_dim(const Graph& graph, std::string_view argument, int64_t n) {
  const std::string attention = scope_with(graph, "attn", "heads");
  const int64_t heads = size_of(graph, attention, "heads");
  const int64_t group = std::max<int64_t>(size_of(graph, attention, "group"), 1);
  if (n > heads * group) {
    return invalid_input(
        fmt::format("{} = {} is more than the {} attention heads (heads = {}, group = {})",
                    argument, n, heads * group, heads, group));
  }
  return std::string(heads < n && group >= n ? "group" : "heads");
}

Status tensor_parallel(PlanText& text, const Graph& graph, bool sequence_shard) {
  if (!text.has("tp")) return {};
  if (sequence_shard) {
    if (ops_with(graph, "seq").empty())
      return invalid_input("sequence_shard needs ops of blocks with the dim 'seq', found none");
    text.split("*", "seq", "cp,tp");
    text.split(ops_with(graph, "heads,seq"), "seq", "cp");
    text.split(ops_with(graph, "ffn,seq"), "seq", "cp");
  }
  const size_t before = text.splits.size();
  if (const std::string attention = scope_with(graph, "attn", "heads"); !attention.empty()) {
    const int64_t tp = text.size("tp");
    TESSERA_TRY(const std::string dim, heads_dim(graph, "tp", tp));
    text.split(attention, dim, "tp");
  }
  if (has_dim(graph, "blocks.*.ssm", "heads")) {
    const int64_t groups = size_of(graph, "blocks.*.ssm", "heads");
    if (text.size("tp") > groups) {
      return invalid_input(
          fmt::format("tp = {} is more than the {} groups of heads of the state space blocks",
                      text.size("tp"), groups));
    }
    text.split("blocks.*.ssm", "heads", "tp");
  }
  text.split(scope_with(graph, "mlp", "ffn"), "ffn", "tp");
  const std::vector<std::string> with_vocab = scopes_with_vocab(graph);
  if (!with_vocab.empty()) {
    if (sequence_shard) {
      std::vector<std::string> whole = ops_outside(graph, "vocab,hidden");
      const std::vector<std::string> loss = loss_ops(graph);
      whole.insert(whole.end(), loss.begin(), loss.end());
      text.split(alternatives(whole), "seq", "cp");
    }
    text.split(alternatives(with_vocab), "vocab", "all,tp");
  }
  if (text.splits.size() > before) return {};
  return invalid_input(
      "tensor parallelism needs ops blocks.*.attn with the dim 'heads', blocks.*.mlp with 'ffn' or "
      "{embed,head,loss} with 'vocab', found none");
}

std::vector<RecipeArgument> with_outer(std::vector<RecipeArgument> own) {
  own.push_back(pp_argument("1"));
  own.push_back(dp_argument("1"));
  own.push_back(
      number("zero", "0", "0, or what is sharded over the replicas at rest: see zero", 0));
  own.push_back(micro_batches_argument("1"));
  own.push_back(schedule_argument());
  own.push_back(chunks_argument());
  own.push_back(recompute_argument());
  return own;
}

Result<PlanText> outer(const RecipeArguments& arguments, const Graph& graph, Axes inner) {
  const int64_t pp = arguments.number("pp");
  TESSERA_TRY_VOID(check_zero(arguments));
  PlanText text{.mesh = {{"pp", pp}, {"dp", arguments.number("dp")}},
                .micro_batches = arguments.number("micro_batches")};
  text.mesh.insert(text.mesh.end(), inner.begin(), inner.end());
  TESSERA_TRY_VOID(named_pipeline(text, graph, arguments));
  TESSERA_TRY_VOID(recompute(text, graph, arguments.text("recompute")));
  return text;
}

}  // namespace tessera::recipes
