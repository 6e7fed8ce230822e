#include "tessera/export/settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "tessera/base/text.h"
#include "tessera/plan/recipes.h"
#include "tessera/plan/recipes/parts.h"

namespace tessera {
namespace {

// Returns the call of the recipe whose plan is nearest to the settings. plan_of() then adds what
// the recipe cannot do.
std::string call_of(const ExportSettings& s, const Graph& forward) {
  std::vector<std::string> arguments;
  const auto add = [&](std::string_view name, const auto& value, const auto& otherwise) {
    if (value != otherwise) arguments.push_back(fmt::format("{}={}", name, value));
  };
  const int64_t dp = s.replicas * s.dp;
  if (s.cp > 1 && s.context == ContextForm::kHeads) {
    add("sp", s.cp, 0);
    add("dp", dp, 1);
    add("zero", s.zero, 0);
    return fmt::format("ulysses({})", join(arguments, ","));
  }
  const bool mixture = has_experts(forward) && s.cp == 1;
  if (mixture) add("ep", s.ep, 0);
  add("dp", dp, 1);
  add("tp", s.tp, 1);
  add("pp", s.pp, 1);
  add("micro_batches", s.micro_batches, 1);
  add("schedule", s.schedule, "1f1b");
  add("chunks", s.chunks, 1);
  add("zero", s.zero, 0);
  add("recompute", s.recompute, "none");
  if (s.sequence_shard) arguments.emplace_back("sequence_shard=true");
  if (!mixture) {
    add("cp", s.cp, 1);
    if (s.cp > 1) add("order", s.token_order, "zigzag");
  }
  return fmt::format("{}({})", mixture ? "expert_parallel" : "megatron", join(arguments, ","));
}

// Splits the axis dp into replicas (outer) and dp (inner). Both cut the batch; only dp cuts what
// rests in shards.
void set_replicas(Plan& plan, const ExportSettings& s) {
  if (s.replicas == 1) return;
  const auto axis = std::find_if(plan.mesh.begin(), plan.mesh.end(),
                                 [](const auto& named) { return named.first == "dp"; });
  if (axis == plan.mesh.end()) return;
  axis->second = s.replicas;
  axis->first = "replicas";
  if (s.dp > 1) plan.mesh.insert(axis + 1, {"dp", s.dp});
  for (SplitEntry& split : plan.splits) {
    const auto dp = std::find(split.over.begin(), split.over.end(), "dp");
    if (dp == split.over.end()) continue;
    if (s.dp > 1) {
      split.over.insert(dp, "replicas");
    } else {
      *dp = "replicas";
    }
  }
  if (s.dp > 1) return;
  for (StoreEntry& store : plan.stores) {
    if (store.over) std::erase(*store.over, "dp");
  }
}

void set_rank_order(Plan& plan, const ExportSettings& s) {
  if (!s.stages_inside) return;
  const auto is_outer = [](const auto& axis) {
    return axis.first == "replicas" || axis.first == "dp";
  };
  std::stable_partition(plan.mesh.begin(), plan.mesh.end(), is_outer);
}

// Sets the stages if their numbers of blocks differ from those of the recipe.
Status set_blocks(Plan& plan, const ExportSettings& s, const Graph& forward) {
  if (s.blocks.empty()) return {};
  const recipes::Blocks blocks(forward);
  int64_t first = 0;
  for (const int64_t size : s.blocks) first += size;
  // The first stage may have only the embedding, and the last one only the head.
  const bool empty = s.blocks.size() > 2 &&
                     std::find(s.blocks.begin() + 1, s.blocks.end() - 1, 0) != s.blocks.end() - 1;
  if (first != blocks.count() || s.blocks.size() != plan.stages.size() || empty) {
    return invalid_input(
        fmt::format("expected stages that share the {} blocks, at most the first and the last one "
                    "without any, found {}",
                    blocks.count(), fmt::join(s.blocks, ", ")));
  }
  first = 0;
  for (size_t i = 0; i < s.blocks.size(); ++i) {
    std::vector<std::string> parts;
    if (i == 0) parts = blocks.before();
    if (s.blocks[i] > 0) parts.push_back(blocks.run(first, s.blocks[i]));
    if (i + 1 == s.blocks.size())
      parts.insert(parts.end(), blocks.after().begin(), blocks.after().end());
    plan.stages[i].ops = recipes::alternatives(parts);
    first += s.blocks[i];
  }
  return {};
}

}  // namespace

bool has_experts(const Graph& forward) {
  return recipes::has_dim(forward, "blocks.*.moe", "experts");
}

std::vector<int64_t> even_blocks(int64_t blocks, int64_t stages) {
  std::vector<int64_t> out;
  for (int64_t s = 0; s < stages; ++s) out.push_back(blocks / stages + (s < blocks % stages));
  return out;
}

std::string ExportSettings::str() const {
  std::vector<std::string> parts;
  const auto add = [&](std::string_view name, const auto& value, const auto& otherwise) {
    if (value != otherwise) parts.push_back(fmt::format("{}={}", name, value));
  };
  add("pp", pp, 1);
  add("replicas", replicas, 1);
  add("dp", dp, 1);
  add("cp", cp, 1);
  add("ep", ep, 1);
  add("tp", tp, 1);
  if (stages_inside) parts.emplace_back("stages_inside");
  if (cp > 1) {
    parts.push_back(context == ContextForm::kHeads    ? "context=heads"
                    : context == ContextForm::kGather ? "context=gather," + token_order
                                                      : "context=" + token_order);
  }
  if (sequence_shard) parts.emplace_back("sequence_shard");
  if (!whole.empty()) parts.push_back(fmt::format("whole={}", fmt::join(whole, "+")));
  add("chunks", chunks, 1);
  add("schedule", schedule, "1f1b");
  if (!blocks.empty()) parts.push_back(fmt::format("blocks={}", fmt::join(blocks, "+")));
  add("micro_batches", micro_batches, 1);
  add("batch", batch, 0);
  add("zero", zero, 0);
  add("gathered_ahead", gathered_ahead, 0);
  add("recompute", recompute, "none");
  add("compute", dtype_name(compute), "float32");
  add("gradient", dtype_name(gradient), "float32");
  if (bucket_bytes) parts.push_back(fmt::format("bucket_bytes={}", *bucket_bytes));
  return join(parts, " ");
}

std::string ExportSettings::whole_text() const {
  std::vector<std::string> parts;
  if (whole.contains("heads")) parts.emplace_back("attention by heads");
  if (whole.contains("ffn")) parts.emplace_back("the MLP by ffn");
  if (whole.contains("vocab")) parts.emplace_back("embedding, head and loss by vocab");
  return join(parts, " and ");
}

Result<Plan> plan_of(const ExportSettings& s, const Graph& forward) {
  const std::string text = call_of(s, forward);
  TESSERA_TRY(RecipeCall call, parse_recipe_call(text));
  compute_in(s.compute, call);
  TESSERA_TRY(const std::string emitted, emit_recipe(call, forward, text));
  TESSERA_TRY(Plan plan, parse_plan(emitted, text));
  if (s.gradient != DType::kFloat32) plan.precision.gradient = s.gradient;
  if (s.cp > 1 && s.context == ContextForm::kHeads) {
    plan.micro_batches = s.micro_batches;
    if (s.pp > 1 || s.tp > 1 || s.ep > 1 || s.recompute != "none") {
      return invalid_input(
          "heads over the ranks of a sequence stand beside data parallelism alone: expected pp, tp "
          "and ep of 1 and no recomputation");
    }
  }
  if (s.cp > 1 && s.context == ContextForm::kGather) {
    // Without the loop over the keys' pieces a rank works with the keys of all tokens at once.
    std::erase_if(plan.splits, [](const SplitEntry& split) { return split.dim == "kv"; });
  }
  std::erase_if(plan.splits, [&](const SplitEntry& split) { return s.whole.contains(split.dim); });
  TESSERA_TRY_VOID(set_blocks(plan, s, forward));
  set_replicas(plan, s);
  set_rank_order(plan, s);
  if (s.gathered_ahead > 0) plan.prefetch = Prefetch{"blocks.*", s.gathered_ahead};
  if (s.bucket_bytes) plan.bucket_bytes = *s.bucket_bytes;
  return plan;
}

}  // namespace tessera
