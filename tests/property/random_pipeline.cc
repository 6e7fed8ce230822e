#include "random_pipeline.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "tessera/base/check.h"
#include "tessera/graph/builder.h"
#include "tessera/graph/kinds.h"
#include "tessera/graph/order.h"
#include "tessera/plan/prepare.h"
#include "tessera/plan/resolve/selection.h"
#include "tessera/plan/stages.h"

namespace tessera {

int origin(const Graph& graph, std::string_view path) {
  path = path.substr(0, path.find_first_of("@#"));
  int best = -1;
  size_t length = 0;
  for (const Op& op : graph.ops()) {
    const bool fits = path == op.path || path.starts_with(op.path + ".");
    if (!fits || op.path.size() < length) continue;
    best = static_cast<int>(op.id.index());
    length = op.path.size();
  }
  return best;
}

std::vector<bool> with_backward(const Graph& forward_graph, const Pipeline& pipeline,
                                const Plan& plan, int64_t stages) {
  const auto shaped = shape_forward(forward_graph, plan, std::nullopt);
  TESSERA_CHECK(shaped.has_value(), "{}", shaped.error().message);
  const auto graph = differentiate(*shaped, OptimizerSpec{});
  TESSERA_CHECK(graph.has_value(), "{}", graph.error().message);
  std::vector<bool> backward(static_cast<size_t>(stages), false);
  const auto readers = graph->consumers();
  std::vector<int64_t> at(graph->ops().size(), -1);  // by op
  for (const Op& op : graph->ops()) {
    int64_t& stage = at[op.id.index()];
    OpId from = op.phase == Phase::kForward ? op.id : op.mirror;
    if (op.phase == Phase::kUpdate) continue;
    const bool merges = merges_terms(op) || (info_of(op).scales && !from.valid());
    if (op.phase == Phase::kBackward && merges) {  // at the stage of its terms
      for (size_t i = 0; i < op.inputs.size(); ++i) {
        const OpId maker = graph->tensor(op.inputs[i]).producer;
        const int64_t made = maker.valid() ? at[maker.index()] : -1;
        stage = i == 0 || made == stage ? made : -1;
        if (stage < 0) break;
      }
    }
    if (!from.valid() && stage < 0) {  // else at the stage of the tensor that it differentiates
      const TensorId of = graph->tensor(op.outputs[0]).of;
      if (!of.valid()) continue;
      from = graph->tensor(of).producer;
      if (!from.valid()) from = readers[of.index()].front();
    }
    if (stage < 0) {
      const Op& forward = graph->op(from);
      const int number = origin(forward_graph, forward.path);
      if (number < 0) continue;
      stage = pipeline.stage_of[static_cast<size_t>(number)] +
              std::max(forward.step, 0) * static_cast<int64_t>(pipeline.axes.size());
    }
    if (op.phase == Phase::kBackward) backward[static_cast<size_t>(stage)] = true;
  }
  return backward;
}

namespace {

std::string mesh_text(const MeshAxes& axes) {
  std::string out;
  for (const Axis& axis : axes)
    out += fmt::format("{}{} = {}", out.empty() ? "" : ", ", axis.name, axis.size);
  return fmt::format("{{ {} }}", out);
}

// A stage's own mesh.
struct Own {
  MeshAxes axes;
  int64_t first = -1;  // a device; -1: after the stage before
};

class PipelineMaker {
 public:
  PipelineMaker(Choices& choices, const Graph& graph, Features& features, bool meshes)
      : c_(choices), graph_(graph), features_(features), meshes_(meshes) {}

  Pipeline make() {
    size_ = graph_.tensor(graph_.ops()[0].inputs[0]).dims[0].size;
    if (meshes_) {
      if (c_.one_in(3)) {
        nested();
      } else {
        own_meshes();
      }
      finish();
      return std::move(out_);
    }
    // Kinds that few graphs allow are drawn more often for such graphs.
    const uint32_t kind = c_.below(15);
    switch (has_pass() && c_.one_in(4) ? 13 : causal_only() && c_.one_in(8) ? 12 : kind) {
      case 4:
      case 5: chain(); break;
      case 6:
      case 14: interleaved(); break;
      case 7: zero_bubble_v(); break;
      case 8: chimera(); break;
      case 9: placed(); break;
      case 10: own_meshes(); break;
      case 11: nested(); break;
      case 12: token(); break;
      case 13: passes(); break;
      default: one_stage(); break;
    }
    finish();
    return std::move(out_);
  }

 private:
  int64_t ops() const { return static_cast<int64_t>(graph_.ops().size()); }
  bool has_pass() const { return graph_.ops()[0].path.starts_with("pass."); }
  bool has_tied_head() const {
    return std::any_of(graph_.ops().begin(), graph_.ops().end(),
                       [](const Op& op) { return info_of(op).work == WorkClass::kLoss; });
  }
  bool causal_only() const {
    const auto has_seq = [&](TensorId id) {
      const std::vector<Dim>& dims = graph_.tensor(id).dims;
      return std::any_of(dims.begin(), dims.end(), [](const Dim& d) { return d.name == "seq"; });
    };
    return std::all_of(graph_.ops().begin(), graph_.ops().end(), [&](const Op& op) {
      const int seq = op.annotation.find("seq");
      // An op that names the positions otherwise passes all of them on.
      if (seq < 0 && std::any_of(op.inputs.begin(), op.inputs.end(), has_seq)) return false;
      const bool whole =
          seq >= 0 && (op.annotation.dims[static_cast<size_t>(seq)].mark == Mark::kFrozen ||
                       !check_loopable(op, seq));
      return !whole && (info_of(op).work != WorkClass::kAttention || is_causal(op));
    });
  }

  // ---- kinds
  void one_stage() {
    features_.insert("pipeline: none");
    shared_mesh(1, 1);
    schedule_ = c_.of<std::string>({"1f1b", "gpipe", "zb_h1", "table"});
  }

  void chain() {
    const int64_t n = 2 + c_.below(2);
    features_.insert("pipeline: chain");
    shared_mesh(n, n);
    schedule_ = chain_schedule();
  }

  std::string chain_schedule() {
    return c_.of<std::string>({"1f1b", "gpipe", "eager_1f1b", "zb_h1", "zb_h2", "table"});
  }

  void interleaved() {
    const int64_t n = size_ % 3 == 0 && c_.one_in(3) && ops() >= 6 ? 3 : 2;
    features_.insert("pipeline: several stages a place");
    shared_mesh(n, 2 * n);
    schedule_ = c_.of<std::string>({"interleaved", "interleaved", "interleaved", "table"});
    micro_batches_ = n == 3 ? c_.of<int64_t>({3, 6}) : c_.of<int64_t>({2, 4});
  }

  void zero_bubble_v() {
    const int64_t n = c_.one_in(3) && ops() >= 6 ? 3 : 2;
    shared_mesh(n, 2 * n);
    v_places(n);
    schedule_ = "zb_v";
  }

  void v_places(int64_t n) {
    for (int64_t s = 0; s < 2 * n; ++s) place_.push_back(s < n ? s : 2 * n - 1 - s);
  }

  // Halves of the batch pass the stages downwards and upwards.
  void chimera() {
    if (has_pass()) return chain();
    shared_mesh(2, 2);
    v_places(2);
    schedule_ = c_.of<std::string>({"chimera", "table"});
    micro_batches_ = 1;
    out_.loop_dim = "batch";
    out_.loop_steps = 2;
    features_.insert("loop: batch, steps are stages");
  }

  // Any stages at any places.
  void placed() {
    const int64_t n = 2 + c_.below(2);
    const int64_t stages = std::min<int64_t>(ops(), n + c_.below(3));
    features_.insert("pipeline: stages at any places");
    shared_mesh(n, stages);
    for (int64_t s = 0; s < stages; ++s) {
      place_.push_back(s < n ? s : c_.below(static_cast<uint32_t>(n)));
    }
    for (size_t s = place_.size(); s > 1; --s) {
      std::swap(place_[s - 1], place_[c_.below(static_cast<uint32_t>(s))]);
    }
    schedule_ = "table";
  }

  void own_meshes() {
    const int64_t n = 2 + c_.below(2);
    features_.insert("mesh: of the stages' own");
    for (int64_t s = 0; s < n; ++s) own_.push_back({shape(c_.of<int64_t>({2, 1, 3, 4})), -1});
    mesh_ = {{"a", 2}};
    if (own_.size() > 2 && c_.one_in(3)) own_.back().axes.clear();  // the plan's mesh
    schedule_ = chain_schedule();
  }

  // Stages on all devices and on halves of them.
  void nested() {
    const int64_t half = c_.of<int64_t>({1, 2, 3});
    const MeshAxes whole = shape(2 * half);
    std::vector<MeshAxes> halves{shape(half), shape(half)};
    mesh_ = {{"a", 1}};
    features_.insert("mesh: nested devices");
    const auto add = [&](int64_t region) {
      if (region == 0) {
        own_.push_back({whole, 0});
      } else {
        own_.push_back({halves[static_cast<size_t>(region - 1)], region == 1 ? 0 : half});
      }
    };
    schedule_ = c_.of<std::string>({"interlaced", "interlaced", "table"});
    if (c_.one_in(2)) add(0);
    add(1);
    if (c_.one_in(2) && ops() >= 5) add(0);
    add(2);
    if (own_.size() == 2 || (own_.size() == 3 && c_.one_in(3))) add(0);
  }

  // Slices of the sequence are stages.
  void token() {
    if (!causal_only()) return chain();
    shared_mesh(2, 2);
    const int64_t seq = graph_.tensor(graph_.ops()[0].inputs[0]).dims[1].size;
    schedule_ = c_.of<std::string>({"token", "token_1f1b", "table"});
    out_.loop_dim = "seq";
    out_.loop_steps = 2 + c_.below(static_cast<uint32_t>(std::min<int64_t>(seq, 3) - 1));
    features_.insert("loop: seq, steps are stages");
  }

  // A pass without gradients and a pass with gradients, over the same places.
  void passes() {
    // Gradients of a parameter that several ops read are added up at its first reader's stage.
    if (!has_pass() || has_tied_head()) return chain();
    schedule_ = "nf1b";
    shared_mesh(2, 4);
    const size_t first = 1 + c_.below(2), all = static_cast<size_t>(ops());
    cuts_ = {first - 1, 2, 3 + c_.below(static_cast<uint32_t>(all - 4))};
  }

  // ---- meshes
  MeshAxes shape(int64_t size) {
    if (meshes_) return any_shape(size);
    switch (size) {
      case 1: return {{"a", 1}};
      case 2: return {{c_.of<std::string>({"a", "b"}), 2}};
      case 4: return c_.one_in(2) ? MeshAxes{{"a", 2}, {"b", 2}} : MeshAxes{{"a", 4}};
      case 6: return c_.one_in(2) ? MeshAxes{{"b", 3}, {"a", 2}} : MeshAxes{{"a", 2}, {"b", 3}};
      default: return {{"a", size}};
    }
  }

  // Returns one axis, or two in any order, of three names: an axis of a given number may be another
  // one on the next mesh.
  MeshAxes any_shape(int64_t size) {
    std::vector<std::string> names = {"a", "b", "c"};
    const auto take = [&] {
      const uint32_t pick = c_.below(static_cast<uint32_t>(names.size()));
      const std::string name = names[pick];
      names.erase(names.begin() + pick);
      return name;
    };
    const int64_t inner = size % 2 == 0 ? 2 : 1;
    if (inner == 1 || (size > 2 && c_.one_in(3))) return {{take(), size}};
    MeshAxes out{{take(), inner}};
    if (size > 2 || c_.one_in(3)) out.push_back({take(), size / inner});
    if (c_.one_in(2)) std::reverse(out.begin(), out.end());
    return out;
  }

  void shared_mesh(int64_t places, int64_t stages) {
    int64_t ranks = places;
    if (places > 1) mesh_.push_back({"pp", places});
    const uint32_t axes = c_.below(3);
    for (uint32_t a = 0; a < axes; ++a) {
      const int64_t size = c_.of<int64_t>({2, 3, 4});
      if (ranks * size > 12) continue;
      shared_.push_back({std::string(1, static_cast<char>('a' + a)), size});
      ranks *= size;
    }
    mesh_.insert(mesh_.end(), shared_.begin(), shared_.end());
    if (mesh_.empty()) mesh_ = shared_ = {{"a", 1}};
    if (shared_.size() == 2) features_.insert("mesh: two axes");
    stages_ = stages;
  }

  // ---- text
  void finish() {
    if (!own_.empty()) stages_ = static_cast<int64_t>(own_.size());
    // With one micro-batch, gradients cross as they are made, but a stage without a backward pass
    // takes them in only when it updates.
    if (micro_batches_ == 0 && has_pass() && stages_ > 1) micro_batches_ = c_.of<int64_t>({2, 4});
    if (micro_batches_ == 0) micro_batches_ = c_.of<int64_t>({1, 2, 3, 4});
    out_.micro_batches = micro_batches_;
    if (micro_batches_ > 1) features_.insert("micro-batches");
    if (size_ % micro_batches_ != 0) features_.insert("micro-batches of two sizes");
    out_.keys = fmt::format("mesh = {}\nmicro_batches = {}\n", mesh_text(mesh_), micro_batches_);
    if (!place_.empty()) out_.keys += fmt::format("place = [{}]\n", fmt::join(place_, ", "));
    for (int64_t s = 0; s < stages_; ++s) {
      const bool own = !own_.empty() && !own_[static_cast<size_t>(s)].axes.empty();
      out_.axes.push_back(own ? own_[static_cast<size_t>(s)].axes : own_.empty() ? shared_ : mesh_);
    }
    make_stages();
    if (!out_.loop_dim.empty()) {
      out_.tables += fmt::format("[[loop]]\nops = \"*\"\ndim = \"{}\"\nsteps = {}\nstages = true\n",
                                 out_.loop_dim, out_.loop_steps);
    }
    out_.has_table = schedule_ == "table";
    features_.insert("schedule: " + schedule_);
    out_.keys += schedule_ == "table" ? table() : fmt::format("schedule = \"{}\"\n", schedule_);
  }

  void make_stages() {
    const auto count = static_cast<size_t>(stages_);
    auto all = static_cast<size_t>(ops());
    if (!out_.loop_dim.empty()) --all;  // the last op has none of the loop's dims
    TESSERA_CHECK(count <= all, "{} stages of {} ops", count, all);
    for (size_t s = 1; cuts_.size() + 1 < count; ++s) {  // stage s - 1 ends with op cuts_[s - 1]
      const size_t begin = cuts_.empty() ? 0 : cuts_.back() + 1;
      cuts_.push_back(begin + c_.below(static_cast<uint32_t>(all - count + s - begin)));
    }
    write_stages(count, meshes_);
    if (meshes_ && !follow_rules()) write_stages(count, false);
  }

  // `leave_out`: no entry names some of the ops.
  void write_stages(size_t count, bool leave_out) {
    const auto all = static_cast<size_t>(ops());
    out_.tables.clear();
    out_.stage_of.assign(all, 0);
    size_t stage = 0;
    std::set<size_t> told;
    for (size_t i = 0; i < all; ++i) {
      while (stage < cuts_.size() && i > cuts_[stage]) ++stage;
      out_.stage_of[i] = static_cast<int>(stage);
      if (count == 1 || (leave_out && told.contains(stage) && c_.one_in(3))) continue;
      out_.tables += fmt::format("[[stage]]\nops = \"{}\"\nat = {}\n", graph_.ops()[i].path, stage);
      const bool own = stage < own_.size() && !own_[stage].axes.empty();
      if (!own || !told.insert(stage).second) continue;
      out_.tables += fmt::format("mesh = {}\n", mesh_text(own_[stage].axes));
      if (own_[stage].first >= 0) out_.tables += fmt::format("devices = {}\n", own_[stage].first);
    }
  }

  // Finds the stages of ops that no entry names. Returns false if the plan is wrong.
  bool follow_rules() {
    const auto plan = parse_plan(out_.keys + out_.tables);
    TESSERA_CHECK(plan.has_value(), "{}", plan.error().message);
    const auto meshes = stage_meshes(*plan);
    if (!meshes) return false;
    ResolvedPlan resolved;
    resolved.plan = *plan;
    resolved.ops.resize(graph_.ops().size());
    make_places(resolved, *meshes);
    GraphNames names(graph_);
    Selection selection(*plan, graph_, names);
    Stages stages(*plan, graph_, resolved);
    if (!stages.assign(selection) || !stages.check()) return false;
    for (size_t i = 0; i < out_.stage_of.size(); ++i)
      out_.stage_of[i] = resolved.ops[i].stage.value;
    return true;
  }

  // ---- tables
  // The order of each micro-batch: forwards, then backwards, and weights any time after their
  // backward.
  std::vector<BlockRun> order_of_one(const std::vector<bool>& backward) {
    std::vector<BlockRun> order;
    const auto stages = static_cast<int64_t>(backward.size());
    for (int64_t s = 0; s < stages; ++s) order.push_back({BlockRun::kForward, 0, s});
    for (int64_t s = stages; s-- > 0;) {
      if (backward[static_cast<size_t>(s)]) order.push_back({BlockRun::kBackward, 0, s});
    }
    for (int64_t s = stages; s-- > 0;) {
      if (!backward[static_cast<size_t>(s)] || !c_.one_in(2)) continue;
      features_.insert("schedule: table with W");
      const BlockRun made{BlockRun::kBackward, 0, s};
      const auto after = std::find(order.begin(), order.end(), made) + 1;
      const auto later = c_.below(static_cast<uint32_t>(order.end() - after) + 1);
      order.insert(after + later, {BlockRun::kWeight, 0, s});
    }
    return order;
  }

  // Returns any order of all micro-batches that keeps the order of each: it can be executed if
  // every message leaves as soon as its value exists.
  std::vector<BlockRun> random_order(const std::vector<bool>& backward) {
    const std::vector<BlockRun> one = order_of_one(backward);
    std::vector<size_t> next(static_cast<size_t>(micro_batches_), 0);
    std::vector<BlockRun> order;
    while (order.size() < one.size() * next.size()) {
      size_t m = c_.below(static_cast<uint32_t>(next.size()));
      while (next[m] == one.size()) m = (m + 1) % next.size();
      order.push_back(one[next[m]++]);
      order.back().micro_batch = static_cast<int64_t>(m);
    }
    return order;
  }

  std::string table() {
    const auto plan = parse_plan(out_.keys + out_.tables);
    TESSERA_CHECK(plan.has_value(), "{}", plan.error().message);
    const auto meshes = stage_meshes(*plan);
    TESSERA_CHECK(meshes.has_value(), "{}", meshes.error().message);
    ResolvedPlan places;
    places.plan = *plan;
    make_places(places, *meshes);
    const auto order = random_order(
        with_backward(graph_, out_, *plan, static_cast<int64_t>(places.stages.size())));
    std::string out = "schedule = [\n";
    for (const std::vector<PlaceId>& row : places.rows) {
      std::vector<std::string> runs;
      for (const BlockRun& run : order) {
        const PlaceId place = places.place_of(StageId(static_cast<int32_t>(run.stage)));
        if (std::find(row.begin(), row.end(), place) != row.end())
          runs.push_back('"' + to_string(run) + '"');
      }
      out += fmt::format("  [{}],\n", fmt::join(runs, ", "));
    }
    return out + "]\n";
  }

  Choices& c_;
  const Graph& graph_;
  Features& features_;
  Pipeline out_;
  int64_t size_ = 4;  // of the batch
  MeshAxes mesh_, shared_;
  std::vector<Own> own_;        // by stage; empty: all share the plan's mesh
  std::vector<int64_t> place_;  // by stage, or empty
  std::vector<size_t> cuts_;    // stage s ends with op cuts_[s]
  int64_t stages_ = 1, micro_batches_ = 0;
  std::string schedule_ = "1f1b";
  bool meshes_;
};

}  // namespace

Pipeline random_pipeline(Choices& choices, const Graph& graph, Features& features, bool meshes) {
  return PipelineMaker(choices, graph, features, meshes).make();
}

}  // namespace tessera
