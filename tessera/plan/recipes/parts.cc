#include "tessera/plan/recipes/parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tessera::recipes {

Status data_parallel(PlanText& text, const Graph& graph) {
  if (!text.has("dp")) return {};
  if (!has_dim(graph, "*", "batch"))
    return invalid_input("expected ops with the dim 'batch', found none");
  text.split("*", "batch", "dp");
  return {};
}

void zero(PlanText& text, int64_t stage) {
  if (stage >= 1) text.store("optimizer.*", "dp");
  if (stage >= 2) text.store("role:gradient", "dp");
  if (stage >= 3) text.store("role:parameter", "dp");
}

Result<std::string> heads_dim(const Graph& graph, std::string_view argument, int64_t n) {
  const std::string attention = "blocks.*.attn";
  const int64_t heads = size_of(graph, attention, "heads");
  const int64_t group = std::max<int64_t>(size_of(graph, attention, "group"), 1);
  if (n > heads * group) {
    return invalid_input(
        fmt::format("{} = {} is more than the {} attention heads (heads = {}, group = {})",
                    argument, n, heads * group, heads, group));
  }
  return std::string(heads < n && group >= n ? "group" : "heads");
}

Status tensor_parallel(PlanText& text, const Graph& graph) {
  if (!text.has("tp")) return {};
  const size_t before = text.splits.size();
  if (has_dim(graph, "blocks.*.attn", "heads")) {
    const int64_t tp = text.size("tp");
    TESSERA_TRY(const std::string dim, heads_dim(graph, "tp", tp));
    text.split("blocks.*.attn", dim, "tp");
  }
  if (has_dim(graph, "blocks.*.mlp", "ffn")) text.split("blocks.*.mlp", "ffn", "tp");
  std::vector<std::string> with_vocab;
  for (const char* top : {"embed", "head", "loss"}) {
    if (has_dim(graph, top, "vocab")) with_vocab.emplace_back(top);
  }
  if (!with_vocab.empty()) {
    text.split(alternatives(with_vocab), "vocab", "tp");
  }
  if (text.splits.size() > before) return {};
  return invalid_input(
      "tensor parallelism needs ops blocks.*.attn with the dim 'heads', blocks.*.mlp with 'ffn' or "
      "{embed,head,loss} with 'vocab', found none");
}

Status pipeline(PlanText& text, const Graph& graph, int64_t pp, const std::string& schedule) {
  if (pp == 1 && text.micro_batches == 1) return {};
  text.schedule = schedule;
  if (pp == 1) return {};
  const int64_t layers = block_count(graph);
  if (layers < pp) {
    return invalid_input(
        fmt::format("pp = {} needs at least {} blocks, but the graph has {}", pp, pp, layers));
  }
  const auto [before, after] = around_blocks(graph);
  int64_t first = 0;
  for (int64_t s = 0; s < pp; ++s) {
    const int64_t count = layers / pp + (s < layers % pp ? 1 : 0);
    std::vector<std::string> parts;
    if (s == 0) parts = before;
    parts.push_back(count == 1 ? fmt::format("blocks.{}", first)
                               : fmt::format("blocks.[{}-{}]", first, first + count - 1));
    if (s + 1 == pp) parts.insert(parts.end(), after.begin(), after.end());
    text.stages.emplace_back(alternatives(parts), s);
    first += count;
  }
  return {};
}

}  // namespace tessera::recipes
