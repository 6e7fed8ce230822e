#include "tessera/compile/outer_fragments.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "tessera/base/text.h"
#include "tessera/graph/optimizers.h"
#include "tessera/plan/islands.h"
#include "tessera/plan/prepare.h"
#include "tessera/program/place_text.h"

namespace tessera {
namespace {

std::string difference_of(const std::string& parameter) { return "apart." + parameter; }

// Returns the number of the repeated block that a name has ("blocks.3.attn.q.weight"), -1 without.
int64_t block_of_name(const std::string& name) {
  for (const std::string& piece : split_text(name, '.')) {
    if (const auto number = parse_int(piece)) return *number;
  }
  return -1;
}

// Returns for each parameter the fragment to which it belongs. The blocks of the model are dealt to
// the fragments in order. Parameters before the first block belong to the first fragment, later
// ones without a block to the last.
Result<std::vector<size_t>> fragments_of(const Plan& plan, const std::vector<std::string>& names) {
  int64_t blocks = 0;
  for (const std::string& name : names) blocks = std::max(blocks, block_of_name(name) + 1);
  const int64_t fragments = plan.outer->fragments;
  if (fragments > std::max<int64_t>(blocks, 1)) {
    return invalid_input(fmt::format(
        "{}:{}: expected at most as many fragments as the model has blocks, {}, found {}",
        plan.file, plan.outer->line, std::max<int64_t>(blocks, 1), fragments));
  }
  std::vector<size_t> out;
  bool in_blocks = false;
  for (const std::string& name : names) {
    const int64_t block = block_of_name(name);
    in_blocks = in_blocks || block >= 0;
    const int64_t fragment =
        block >= 0 ? block * fragments / blocks : (in_blocks ? fragments - 1 : 0);
    out.push_back(static_cast<size_t>(fragment));
  }
  return out;
}

// Makes the graph of an outer step of these parameters of the inner graph.
Result<Graph> outer_graph(const Plan& plan, const Graph& inner,
                          const std::vector<TensorId>& parameters) {
  const OuterSteps& outer = *plan.outer;
  const int64_t count = islands(plan);
  OptimizerSpec spec;
  spec.kind = outer.optimizer;
  spec.momentum = outer.momentum;
  spec.nesterov = outer.nesterov ? 1 : 0;
  spec.weight_decay = 0;
  spec.clip_norm = 0;
  GraphBuilder g("outer");
  UpdateScalars scalars;
  const DType scalar =
      inner.tensor(parameters.front()).dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
  scalars.lr = g.input("lr", {}, scalar);
  scalars.step = g.input("step", {}, scalar);
  g.graph().tensor(scalars.lr).init.kind = Init::Kind::kLearningRate;
  g.graph().tensor(scalars.step).init.kind = Init::Kind::kStep;
  std::vector<std::pair<TensorId, TensorId>> differences;  // the parameter, its difference
  for (const TensorId id : parameters) {
    const Tensor& tensor = inner.tensor(id);
    const TensorId w = g.parameter(tensor.name, tensor.dims, tensor.init, tensor.dtype);
    if (g.ok()) g.graph().tensor(w).published = tensor.published;
    std::vector<Dim> dims{{std::string(kIslandDim), count}};
    dims.insert(dims.end(), tensor.dims.begin(), tensor.dims.end());
    const TensorId local = g.input(std::string(kLocalPrefix) + tensor.name, dims, tensor.dtype);
    differences.emplace_back(w, g.op1(difference_of(tensor.name), "sub", {local, w}));
  }
  if (!g.ok()) return g.finish();
  for (const auto& [w, difference] : differences) {
    const std::string name = g.tensor(w).name;
    g.set_phase(Phase::kBackward);
    g.set_role(Role::kGradient);
    g.set_mirror(g.tensor(difference).producer);
    const TensorId gradient =
        g.op1(difference_of(name) + ".mean", "reduce_sum", {difference},
              {{"dims", std::string(kIslandDim)}, {"factor", -1.0 / static_cast<double>(count)}});
    if (!g.ok()) return g.finish();
    g.graph().tensor(gradient).of = w;
    g.set_phase(Phase::kUpdate);
    g.set_mirror({});
    ParameterUpdate update(g, spec, w, {gradient, {}}, scalars);
    find_optimizer(spec.kind)->update(update);
  }
  return g.finish();
}

// Writes the plan of the outer graph: the whole mesh, in which each parameter is cut as it rests in
// the island, and over the axes along which the island holds it several times.
Result<Plan> outer_plan(const Plan& plan, const Lowering& inner,
                        const std::vector<TensorId>& parameters) {
  Plan out;
  out.file = plan.file;
  out.mesh = plan.mesh;
  out.device_order = plan.device_order;
  out.stage_axis = plan.stage_axis;
  out.micro_batch_dim = kIslandDim;
  out.schedule = "gpipe";
  out.bucket_bytes = plan.bucket_bytes;
  out.style = plan.style;
  SplitEntry over_islands;
  over_islands.ops = "*";
  over_islands.dim = kIslandDim;
  over_islands.over = {plan.outer->axis};
  out.splits.push_back(std::move(over_islands));
  const ResolvedPlan& resolved = inner.plan();
  // Only stages with parameters of the fragment are stages here, on the coordinates that they have.
  int64_t coordinates = 1;  // of the stage axis
  for (const auto& [axis, size] : plan.mesh) {
    if (axis == plan.stage_axis) coordinates = size;
  }
  std::map<StageId, int64_t> number_of_stage;
  for (const TensorId id : parameters) {
    const Tensor& tensor = inner.graph().tensor(id);
    const std::string path = difference_of(tensor.name);
    const StageId stage = resolved.tensors[id.index()].home;
    const PlaceText& text = inner.texts()[resolved.place_of(stage).index()];
    const auto home = std::find_if(text.homes.begin(), text.homes.end(),
                                   [&](const TextHome& one) { return one.tensor == id; });
    if (home == text.homes.end()) continue;
    const Layout& layout = *text.buffers[static_cast<size_t>(home->buffer)].region.layout;
    if (!layout.at.empty()) {
      return invalid_input(fmt::format(
          "{}:{}: expected parameters that all ranks of an island share, found '{}' at one "
          "coordinate of axis '{}'",
          plan.file, plan.outer->line, tensor.name, text.mesh.axis(layout.at.front().axis).name));
    }
    if (resolved.stages.size() > 1) {
      const auto [number, is_new] =
          number_of_stage.try_emplace(stage, static_cast<int64_t>(number_of_stage.size()));
      if (is_new) {
        const size_t s = stage.index();
        out.place.push_back(plan.place.empty() ? static_cast<int64_t>(s) % coordinates
                                               : plan.place[s]);
      }
      StageEntry entry;
      entry.ops = path;
      entry.at = number->second;
      out.stages.push_back(std::move(entry));
    }
    // The axes along which all ranks of the island hold the same go to the largest dim.
    std::vector<std::vector<std::string>> over(tensor.dims.size());
    for (size_t d = 0; d < over.size(); ++d) {
      for (const AxisId axis : layout.shards[d]) over[d].push_back(text.mesh.axis(axis).name);
    }
    const auto largest =
        std::max_element(tensor.dims.begin(), tensor.dims.end(),
                         [](const Dim& a, const Dim& b) { return a.size < b.size; });
    for (size_t a = 0; a < text.mesh.axes.size() && largest != tensor.dims.end(); ++a) {
      if (layout.shards_over(AxisId(a)) || text.mesh.axes[a].size == 1) continue;
      over[static_cast<size_t>(largest - tensor.dims.begin())].push_back(text.mesh.axes[a].name);
    }
    for (size_t d = 0; d < over.size(); ++d) {
      if (over[d].empty()) continue;
      SplitEntry entry;
      entry.ops = path;
      entry.dim = tensor.dims[d].name;
      entry.over = over[d];
      out.splits.push_back(std::move(entry));
    }
  }
  if (plan.outer->compression) {
    CompressEntry entry;
    entry.tensors = "role:gradient";
    entry.on = "*";
    entry.with = *plan.outer->compression;
    out.compress.push_back(std::move(entry));
  }
  return out;
}

}  // namespace

Result<std::vector<OuterFragment>> compile_outer(const Plan& plan, const Lowering& inner) {
  std::vector<TensorId> parameters;
  std::vector<std::string> names;
  for (const Tensor& tensor : inner.graph().tensors()) {
    if (tensor.role != Role::kParameter || !tensor.trained || tensor.update_of.valid()) continue;
    parameters.push_back(tensor.id);
    names.push_back(tensor.name);
  }
  TESSERA_TRY(const std::vector<size_t> fragment_of, fragments_of(plan, names));
  std::vector<OuterFragment> out(static_cast<size_t>(plan.outer->fragments));
  for (size_t f = 0; f < out.size(); ++f) {
    std::vector<TensorId> mine;
    for (size_t p = 0; p < parameters.size(); ++p) {
      if (fragment_of[p] != f) continue;
      mine.push_back(parameters[p]);
      out[f].parameters.push_back(names[p]);
    }
    if (mine.empty()) {
      return invalid_input(
          fmt::format("{}:{}: expected parameters in each of {} fragments, found "
                      "none in fragment {}",
                      plan.file, plan.outer->line, out.size(), f + 1));
    }
    TESSERA_TRY(Graph graph, outer_graph(plan, inner.graph(), mine));
    TESSERA_TRY(const Plan of_graph, outer_plan(plan, inner, mine));
    TESSERA_TRY(Prepared prepared, prepare(std::move(graph), of_graph));
    TESSERA_TRY(Lowering lowering,
                Lowering::create(std::make_shared<Graph>(std::move(prepared.graph)),
                                 std::move(prepared.plan)));
    out[f].lowering = std::make_shared<const Lowering>(std::move(lowering));
  }
  return out;
}

}  // namespace tessera
