// Modules of the plan: those that are gathered at once, that are made again, with which stages
// begin.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "tessera/base/text.h"
#include "tessera/compile/compile.h"
#include "tessera/export/compare.h"
#include "tessera/export/pytorch/facts.h"
#include "tessera/graph/kinds.h"

namespace tessera::pytorch {
namespace {

// Returns the module and the modules around it, the outermost one first, without the whole model.
std::vector<std::string> chain_of(const std::string& module) {
  std::vector<std::string> out;
  for (std::string path = module; !path.empty(); path = parent_of(path))
    out.insert(out.begin(), path);
  return out;
}

bool weighs(const Facts& facts, const Op& op) {
  return std::any_of(op.inputs.begin(), op.inputs.end(),
                     [&](TensorId id) { return parameter_read(*facts.graph, id) != nullptr; });
}

}  // namespace

Status find_remade(Facts& facts, const ModulePaths& modules) {
  const Graph& graph = *facts.graph;
  const std::vector<TensorId>& again = facts.resolved.to_recompute;
  if (again.empty()) return {};
  const std::set<TensorId> wanted(again.begin(), again.end());
  facts.remade_entry = facts.resolved.tensors[again.front().index()].recompute_entry;
  const auto readers = graph.consumers();
  // Whether all that is read in the module alone and kept for the backward pass is made again.
  std::map<std::string, bool> remakes;
  for (const Op& op : graph.ops()) {
    if (op.phase != Phase::kForward) continue;
    for (const TensorId output : op.outputs) {
      bool kept = false;
      std::vector<std::string> modules_of_readers;
      for (const OpId id : readers[output.index()]) {
        const Op& reader = graph.op(id);
        kept = kept || reader.phase == Phase::kBackward;
        if (reader.phase == Phase::kForward) modules_of_readers.push_back(modules.of(reader));
      }
      if (!kept || parameter_read(graph, output) != nullptr) continue;
      const bool remade = wanted.contains(output);
      for (const std::string& module : chain_of(modules.of(op))) {
        const bool within =
            std::all_of(modules_of_readers.begin(), modules_of_readers.end(),
                        [&](const std::string& path) { return inside(path, module); });
        if (!within && !remade) continue;  // what leaves a module may stay
        const auto [at, fresh] = remakes.try_emplace(module, true);
        at->second = at->second && remade;
      }
    }
  }
  std::set<TensorId> left = wanted;
  for (const auto& [module, remade] : remakes) {  // in the order of paths: outer modules first
    const bool covered =
        std::any_of(facts.remade.begin(), facts.remade.end(),
                    [&](const std::string& outer) { return inside(module, outer); });
    if (!remade || covered) continue;
    facts.remade.push_back(module);
  }
  for (const TensorId id : again) {
    const std::string& module = modules.of(graph.op(graph.tensor(id).producer));
    for (const std::string& outer : facts.remade) {
      if (inside(module, outer)) left.erase(id);
    }
  }
  if (!left.empty()) {
    return cannot_run(
        store_place(facts, facts.resolved.tensors[left.begin()->index()].recompute_entry),
        fmt::format("torch.utils.checkpoint makes whole modules again, and '{}' lies "
                    "in none that is",
                    graph.tensor(*left.begin()).name),
        "recompute=full (all of the blocks but what leaves them)");
  }
  return {};
}

Status find_stages(Facts& facts, const ModulePaths& modules) {
  const Graph& graph = *facts.graph;
  const auto stages = static_cast<int64_t>(facts.resolved.stages.size());
  for (int block = 0; block < modules.blocks(); ++block) {
    if (const std::string module = modules.block(block); !module.empty())
      facts.units.push_back(module);
  }
  if (stages == 1) return {};
  const std::string where = facts.plan.stages.empty()
                                ? facts.plan.file
                                : entry_text(facts.plan, facts.plan.stages.back());
  const auto stage_of = [&](const Op& op) { return facts.resolved.ops[op.id.index()].stage.value; };
  std::vector<std::string> known = {"gpipe", "1f1b", "interleaved"};
  if (std::find(known.begin(), known.end(), facts.plan.schedule) == known.end()) {
    return cannot_run(fmt::format("{}:{} (schedule = \"{}\")", facts.plan.file,
                                  facts.plan.schedule_line, facts.plan.schedule),
                      "this file takes the schedules " + join(known, ", "), "1f1b");
  }
  const int64_t ranks = facts.size_of(AxisUse::kStages);
  for (int64_t stage = 0; stage < stages; ++stage) {
    const PlaceId place = facts.resolved.stages[static_cast<size_t>(stage)].place;
    if (place == facts.resolved.stages[static_cast<size_t>(stage % ranks)].place) continue;
    return cannot_run(where, "stage i runs on rank i modulo the number of ranks",
                      "the plan without `place`");
  }
  std::map<std::string, int64_t> first_stage;  // of any op in the module
  for (const Op& op : graph.ops()) {
    if (op.phase != Phase::kForward || parameter_read(graph, op.outputs[0])) continue;
    for (const std::string& module : chain_of(modules.of(op))) {
      const auto [at, fresh] = first_stage.try_emplace(module, stage_of(op));
      at->second = std::min<int64_t>(at->second, stage_of(op));
    }
  }
  int64_t reached = 0;
  for (const Op& op : graph.ops()) {
    if (op.phase != Phase::kForward || !weighs(facts, op) || parameter_read(graph, op.outputs[0]))
      continue;
    const int64_t stage = stage_of(op);
    if (stage == reached) continue;
    const std::vector<std::string> chain = chain_of(modules.of(op));
    const auto module = std::find_if(chain.begin(), chain.end(), [&](const std::string& path) {
      return first_stage.at(path) == stage;
    });
    if (stage != reached + 1 || module == chain.end()) {
      return cannot_run(where,
                        fmt::format("'{}' is on stage {}, and what is called before it is on "
                                    "stage {}: a stage is what is called between the beginnings "
                                    "of two modules",
                                    op.path, stage, reached),
                        "stages of whole blocks in their order");
    }
    facts.stage_starts.push_back(*module);
    reached = stage;
  }
  if (reached + 1 == stages) return {};
  return cannot_run(where, "a stage has no parameters", "stages with a block at least");
}

Result<Facts> find_facts(const ExportQuestion& question) {
  Facts facts;
  facts.model = question.model;
  TESSERA_TRY(facts.plan, parse_plan(question.plan.text, question.plan.file));
  if (question.model->family != "graph") {
    return invalid_input(
        fmt::format("export: --to pytorch needs the module's own names: expected a .pt2 or the "
                    "graph that an import made of it, found the family '{}' (write your module "
                    "with tools/export_pt2.py)",
                    question.model->family));
  }
  facts.plan.precision = computing_in(question.compute, facts.plan.precision);
  TESSERA_TRY_VOID(check_entries(facts));
  TESSERA_TRY(facts.graph,
              question.compiler->trained_graph(forward_of(question.model), facts.plan));
  TESSERA_TRY(facts.resolved, resolve(facts.plan, *facts.graph));
  if (facts.plan.precision.compute == DType::kFloat16) {
    return cannot_run(facts.plan.file, "float16 needs a scale of the loss", "bfloat16");
  }
  const ModulePaths modules(*facts.graph);
  TESSERA_TRY_VOID(find_axes(facts));
  TESSERA_TRY_VOID(find_rest(facts));
  TESSERA_TRY_VOID(find_stages(facts, modules));
  TESSERA_TRY_VOID(find_layouts(facts, modules));
  TESSERA_TRY_VOID(find_remade(facts, modules));
  if (facts.zero == 3 && facts.stage_starts.empty() &&
      (!facts.plan.prefetch || facts.plan.prefetch->ahead != 1)) {
    facts.notes.emplace_back(
        "fully_shard gathers a unit at a time and the next one ahead; the plan gathers otherwise");
  }
  // A loss that is a mean over the targets that count needs all micro-batches at once here.
  if (const auto compiled =
          question.compiler->compile(question.model, facts.plan, question.compute);
      !compiled) {
    facts.notes.push_back(fmt::format(
        "Tessera does not run this plan itself ({}); what PyTorch computes is the mean of the "
        "micro-batches",
        compiled.error().message));
  }
  return facts;
}

}  // namespace tessera::pytorch
