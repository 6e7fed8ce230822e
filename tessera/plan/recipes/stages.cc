// Writes the stages that each schedule needs (docs/strategies/pipelines.md).
#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/text.h"
#include "tessera/plan/recipes/parts.h"
#include "tessera/plan/schedules/schedule.h"

namespace tessera::recipes {
namespace {

using Names = std::vector<std::string>;

// Divides the blocks into `count` runs of consecutive blocks and returns a pattern for each:
// "blocks.[0-2]", "blocks.3", ...
Result<Names> runs_of_blocks(const Blocks& blocks, int64_t count, const std::string& what) {
  const int64_t layers = blocks.count();
  if (layers < count) {
    return invalid_input(
        fmt::format("{} needs at least {} blocks, but the graph has {}", what, count, layers));
  }
  Names runs;
  for (int64_t s = 0, first = 0; s < count; ++s) {
    const int64_t size = layers / count + (s < layers % count ? 1 : 0);
    runs.push_back(blocks.run(first, size));
    first += size;
  }
  return runs;
}

// Adds one stage for each run. The ops before the blocks join the first stage, the ops after the
// blocks the last one.
void add_stages(PlanText& text, const Names& runs, const Names& before, const Names& after) {
  for (size_t s = 0; s < runs.size(); ++s) {
    Names parts;
    if (s == 0) parts = before;
    parts.push_back(runs[s]);
    if (s + 1 == runs.size()) parts.insert(parts.end(), after.begin(), after.end());
    text.stages.push_back({alternatives(parts), static_cast<int64_t>(text.stages.size()), "", ""});
  }
}

// Adds the stages of each pass without gradient, whose ops are "pass.<p>.<...>", and then those of
// the training pass, whose paths have no such prefix.
Status add_passes(PlanText& text, const Names& runs, Names before, const Names& after,
                  const Graph& graph) {
  std::erase_if(before, [](const std::string& top) { return top == "pass" || top == "recycle"; });
  const int64_t passes = pass_count(graph);
  for (int64_t p = 0; p < passes; ++p) {
    Names of_pass;
    for (const std::string& run : runs) of_pass.push_back(fmt::format("pass.{}.{}", p, run));
    const std::string again = fmt::format("pass.{}.recycle", p);
    add_stages(text, of_pass, p == 0 ? before : Names{again}, {fmt::format("pass.{}.stop", p)});
  }
  add_stages(text, runs, passes > 0 ? Names{"recycle"} : before, after);
  return {};
}

// Adds the embedding as the first stage and the head as the last one, both on the ranks of all
// places, and the stages of the blocks between them.
Status add_spanning(PlanText& text, const Names& runs, const Names& before, Names after,
                    const Graph& graph) {
  const auto with_vocab = [&](const std::string& top) { return has_dim(graph, top, "vocab"); };
  const auto head = std::find_if(after.begin(), after.end(), with_vocab);
  if (head == after.end() || std::none_of(before.begin(), before.end(), with_vocab)) {
    return invalid_input(
        "schedule 'interlaced' needs ops with the dim 'vocab' before and after the blocks, found "
        "none");
  }
  std::string mesh;
  for (const auto& [axis, size] : text.mesh) {
    const std::string name = axis == "pp" ? "all" : axis;
    if (size > 1) mesh += fmt::format("{}{} = {}", mesh.empty() ? "" : ", ", name, size);
  }
  mesh = fmt::format("{{ {} }}", mesh);
  text.stage_axes = {{"all", text.size("pp")}};
  const Names heads(head, after.end());
  after.erase(head, after.end());
  text.stages.push_back({alternatives(before), 0, mesh, "0"});
  add_stages(text, runs, {}, after);
  text.stages.push_back({alternatives(heads), static_cast<int64_t>(text.stages.size()), mesh, "0"});
  Names cut = before;
  cut.insert(cut.end(), heads.begin(), heads.end());
  std::erase_if(cut, [&](const std::string& top) { return !with_vocab(top); });
  text.split(alternatives(cut), "vocab", "all");
  return {};
}

void there_and_back(PlanText& text, int64_t pp) {
  for (int64_t s = 0; s < pp; ++s) text.place.push_back(s);
  for (int64_t s = pp; s-- > 0;) text.place.push_back(s);
}

}  // namespace

Status pipeline(PlanText& text, const Graph& graph, int64_t pp, const std::string& schedule,
                int64_t chunks) {
  if (chunks > 1 && schedule != "interleaved") {
    return invalid_input(
        fmt::format("chunks = {} needs schedule = interleaved, found '{}'", chunks, schedule));
  }
  if (schedule == "chimera") {
    if (pp % 2 != 0) return invalid_input(fmt::format("expected an even pp, found {}", pp));
    if (text.micro_batches > 1) {
      return invalid_input(fmt::format(
          "schedule 'chimera' halves the batch itself: expected micro_batches = 1, found {}",
          text.micro_batches));
    }
  }
  if (pp == 1 && text.micro_batches == 1) return {};
  text.schedule = pp == 1 && schedule == "zb_v" ? "zb_h1" : schedule;
  if (pp == 1) return {};
  if (schedule == "interleaved" && text.micro_batches % pp != 0) {
    return invalid_input(
        fmt::format("micro_batches = {} is not a multiple of pp = {}, which schedule 'interleaved' "
                    "needs",
                    text.micro_batches, pp));
  }
  const int64_t in_a_row = schedule == "zb_v" ? 2 : chunks;
  const std::string what = in_a_row == 1 ? fmt::format("pp = {}", pp)
                                         : fmt::format("pp = {} of {} chunks", pp, in_a_row);
  const Blocks blocks(graph);
  TESSERA_TRY(const Names runs, runs_of_blocks(blocks, pp * in_a_row, what));
  const Names &before = blocks.before(), &after = blocks.after();
  if (schedule == "nf1b") return add_passes(text, runs, before, after, graph);
  if (schedule == "interlaced") return add_spanning(text, runs, before, after, graph);
  add_stages(text, runs, before, after);
  if (schedule == "zb_v" || schedule == "chimera") there_and_back(text, pp);
  if (schedule == "chimera") text.loop("*", "batch", "steps = 2, stages = true");
  return {};
}

Status named_pipeline(PlanText& text, const Graph& graph, const RecipeArguments& arguments) {
  const std::string& schedule = arguments.text("schedule");
  if (schedule.starts_with("token")) {
    return invalid_input(
        fmt::format("schedule '{}': expected token_pipeline(pp, slices)", schedule));
  }
  const int64_t chunks = arguments.numbers.contains("chunks") ? arguments.number("chunks") : 1;
  return pipeline(text, graph, arguments.number("pp"), schedule, chunks);
}

RecipeArgument schedule_argument() {
  return {"schedule", "1f1b", "order of blocks: " + join(schedule_names(), ", "),
          0,          true,   schedule_names()};
}

RecipeArgument chunks_argument() {
  return number("chunks", "1", "stages of each rank, schedule = interleaved");
}

}  // namespace tessera::recipes
