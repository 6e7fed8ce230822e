#include "tessera/program/copies/equal_stages.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>

#include "tessera/graph/kinds.h"
#include "tessera/plan/resolve/selector.h"
#include "tessera/program/passes/prefetch.h"

namespace tessera {
namespace {

constexpr int64_t kLeastCopies = 2;

// ---- comparisons that ignore names, and which entries of the plan decided
//
// Each function unpacks its first operand with a structured binding of all members. So if a struct
// gets a new member, the code does not compile until the member is compared or left out on purpose.
// A member that is left out by mistake could make a price wrong.

// Compares attributes. An attribute that only tells equal ops apart (the key of a dropout) is not
// compared.
bool alike(const Attributes& a, const Attributes& b, const KindInfo& info) {
  const auto tells_apart = [&](const std::string& name) {
    return std::ranges::any_of(
        info.attributes, [&](const auto& known) { return known.identity && known.name == name; });
  };
  return a == b || std::ranges::equal(a, b, [&](const auto& x, const auto& y) {
           return x.first == y.first && (x.second == y.second || tells_apart(x.first));
         });
}
// Compares ops without their tensors and mirrors. PlaceComparison compares those by their positions
// at the two places.
bool alike(const Op& a, const Op& b) {
  const auto& [id, kind, info, path, phase, inputs, outputs, annotation, attributes, mirror, block,
               step] = a;
  return info == b.info && info != nullptr && phase == b.phase && step == b.step &&
         (block < 0) == (b.block < 0) && inputs.size() == b.inputs.size() &&
         outputs.size() == b.outputs.size() && annotation == b.annotation &&
         alike(attributes, b.attributes, *info);
}
// Compares tensors. Their first values and published dims are not compared, because they cost
// nothing in a step.
bool alike(const Tensor& a, const Tensor& b) {
  const auto& [id, name, dims, dtype, role, init, producer, update_of, recompute, trained, of,
               published] = a;
  return dims == b.dims && dtype == b.dtype && role == b.role && trained == b.trained &&
         recompute == b.recompute;
}
bool alike_entries(int a, int b) { return (a < 0) == (b < 0); }
bool alike(const DimSplit& a, const DimSplit& b) {
  const auto& [axes, steps, order, skew, rims, computes_halo, grown, entry] = a;
  return axes == b.axes && steps == b.steps && order == b.order && skew == b.skew &&
         rims == b.rims && computes_halo == b.computes_halo && grown == b.grown &&
         alike_entries(entry, b.entry);
}
bool alike(const OpPlan& a, const OpPlan& b) {
  const auto& [stage, stage_entry, dims, at] = a;
  return at == b.at && alike_entries(stage_entry, b.stage_entry) &&
         std::ranges::equal(dims, b.dims,
                            [](const DimSplit& x, const DimSplit& y) { return alike(x, y); });
}
// Compares plans of tensors. Plans with row caches are never alike, because caches differ in more
// than is compared here. keep_over_entry is not compared, because it only says which line of the
// plan has set keep_over.
bool alike(const TensorPlan& a, const TensorPlan& b) {
  const auto& [home, over, dim, has_over, tier, cache, recompute, keep, keep_over, over_entry,
               tier_entry, recompute_entry, keep_over_entry, compress] = a;
  return !cache && !b.cache && over.numbers() == b.over.numbers() && dim == b.dim &&
         has_over == b.has_over && tier == b.tier && recompute == b.recompute && keep == b.keep &&
         keep_over.numbers() == b.keep_over.numbers() && compress == b.compress &&
         alike_entries(over_entry, b.over_entry) && alike_entries(tier_entry, b.tier_entry) &&
         alike_entries(recompute_entry, b.recompute_entry);
}

constexpr int32_t kNone = -1, kSeveral = -2;  // instead of a place: no place, several places

// A `PlaceComparison` compares each place with the place before it.
class PlaceComparison {
 public:
  PlaceComparison(const Graph& graph, const ResolvedPlan& plan)
      : graph_(graph), plan_(plan), ops_(ops_by_place(graph, plan)) {
    position_.resize(graph.ops().size());
    for (const auto& place : ops_) {
      for (size_t i = 0; i < place.size(); ++i) position_[place[i].index()] = i;
    }
    read_by_.resize(graph.tensors().size(), kNone);
    output_.resize(graph.tensors().size());
    speaks_far_.resize(ops_.size());
    links_.resize(ops_.size());
    chunk_.resize(plan.stages.size());
    for (const Place& at : plan.places) {
      for (size_t i = 0; i < at.stages.size(); ++i) chunk_[at.stages[i].index()] = i;
    }
    own_.resize(graph.tensors().size());
    for (const Op& op : graph.ops()) {
      const int32_t here = place_of(op.id);
      for (size_t k = 0; k < op.outputs.size(); ++k) output_[op.outputs[k].index()] = k;
      for (const TensorId input : op.inputs) {
        const OpId producer = graph.tensor(input).producer;
        if (!producer.valid()) {
          int32_t& reader = read_by_[input.index()];
          reader = reader == kNone || reader == here ? here : kSeveral;
        } else if (std::abs(place_of(producer) - here) > 1) {
          speaks_far_[static_cast<size_t>(place_of(producer))] = true;
        }
      }
    }
  }

  const std::vector<std::vector<OpId>>& ops() const { return ops_; }

  // Finds the longest run of places in which each place is like the place before it. Returns the
  // run's second place as the original and the later ones as its copies.
  CopiedPlaces longest() {
    CopiedPlaces best;
    const auto places = static_cast<int32_t>(ops_.size());
    int32_t first = 1;
    for (int32_t place = 2; place < places; ++place) {
      if (!is_like_before(place)) {
        first = place;
        continue;
      }
      // The tensors that enter the first place of the run and those that leave its last place need
      // not be alike.
      const bool links = place - 1 == first || (links_[static_cast<size_t>(place)].enters &&
                                                links_[static_cast<size_t>(place) - 1].leaves);
      if (!links) first = place - 1;
      // The last place is never a copy, because there must be a place after the copies.
      const int64_t count = std::min(place, places - 2) - (first + 1);
      if (count > best.count) best = {PlaceId(first + 1), count};
    }
    return best;
  }

 private:
  // `Links` compares what crosses the boundary between a place and the place before it with what
  // crosses the boundary before that. It says whether what enters, and what leaves, is alike.
  struct Links {
    bool enters = true, leaves = true;
  };

  int32_t place_of(OpId op) const { return plan_.place_of(plan_.ops[op.index()].stage).value; }

  // Returns the index of the op's stage among the stages of its place.
  size_t chunk_of(OpId op) const { return chunk_[plan_.ops[op.index()].stage.index()]; }

  bool is_like_before(int32_t place) {
    const auto s = static_cast<size_t>(place);
    const auto &a = ops_[s - 1], &b = ops_[s];
    const Mesh &mesh = plan_.places[s - 1].mesh, &other = plan_.places[s].mesh;
    if (a.empty() || a.size() != b.size() || mesh.axes != other.axes) return false;
    if (speaks_far_[s - 1] || speaks_far_[s]) return false;
    links_[s] = {};
    for (size_t i = 0; i < a.size(); ++i) {
      if (!are_alike(a[i], b[i], place)) return false;
    }
    return units_alike(a, b);
  }

  bool are_alike(OpId a, OpId b, int32_t place) {
    const Op &x = graph_.op(a), &y = graph_.op(b);
    if (!alike(x, y) || !alike(plan_.ops[a.index()], plan_.ops[b.index()])) return false;
    if (chunk_of(a) != chunk_of(b)) return false;
    if (x.mirror.valid() != y.mirror.valid()) return false;
    if (x.mirror.valid() && !stand_alike(x.mirror, y.mirror, place, true)) return false;
    for (size_t k = 0; k < x.outputs.size(); ++k) {
      const Tensor &p = graph_.tensor(x.outputs[k]), &q = graph_.tensor(y.outputs[k]);
      if (!tensors_alike(p, q) || !are_alike(p.of, q.of, place) ||
          !are_alike(p.update_of, q.update_of, place)) {
        return false;
      }
    }
    for (size_t k = 0; k < x.inputs.size(); ++k) {
      if (!are_alike(x.inputs[k], y.inputs[k], place)) return false;
    }
    return true;
  }
  bool tensors_alike(const Tensor& p, const Tensor& q) const {
    return alike(p, q) && alike(plan_.tensors[p.id.index()], plan_.tensors[q.id.index()]);
  }

  // Returns whether tensor `a` is for the place before `place` what tensor `b` is for `place`.
  bool are_alike(TensorId a, TensorId b, int32_t place) {
    if (!a.valid() || !b.valid()) return a == b;
    const Tensor &p = graph_.tensor(a), &q = graph_.tensor(b);
    if (a == b) {  // both places use one tensor, which neither of them may make
      const int32_t made = p.producer.valid() ? place_of(p.producer) : kNone;
      return made != place && made != place - 1;
    }
    if (p.producer.valid() != q.producer.valid() || !tensors_alike(p, q)) return false;
    if (!p.producer.valid()) {
      TensorId& known = own_[a.index()];
      if (!known.valid()) known = b;
      return known == b && read_by_[a.index()] != kSeveral && read_by_[b.index()] != kSeveral;
    }
    return stand_alike(p.producer, q.producer, place, output_[a.index()] == output_[b.index()]);
  }
  // Returns whether op `a` is for the place before `place` what op `b` is for `place`. If the ops
  // are at neighbouring places, the answer is only noted in the links, and the result is true.
  // `same`: whether everything that was compared before is alike.
  bool stand_alike(OpId a, OpId b, int32_t place, bool same) {
    const int32_t away = place_of(b) - place;
    if (std::abs(away) > 1 || place_of(a) - (place - 1) != away) return false;
    same &= position_[a.index()] == position_[b.index()];
    Links& links = links_[static_cast<size_t>(place)];
    links.enters &= away != -1 || same;
    links.leaves &= away != 1 || same;
    return away != 0 || same;
  }

  // Returns whether the ops are divided into units (prefetch.h) alike. This must be compared,
  // because parameters are gathered ahead unit by unit, and units are distinguished by their names.
  bool units_alike(const std::vector<OpId>& a, const std::vector<OpId>& b) const {
    if (!plan_.plan.prefetch) return true;
    const Glob glob(plan_.plan.prefetch->units);
    std::map<std::string, std::string> known;
    for (size_t i = 0; i < a.size(); ++i) {
      const std::string x = unit_of(glob, graph_.op(a[i]).path),
                        y = unit_of(glob, graph_.op(b[i]).path);
      if (x.empty() != y.empty() || known.try_emplace(x, y).first->second != y) return false;
    }
    return true;
  }

  const Graph& graph_;
  const ResolvedPlan& plan_;
  std::vector<std::vector<OpId>> ops_;  // by place
  std::vector<size_t> chunk_;           // by stage: its index among those of its place
  std::vector<size_t> position_;        // by op: its index among those of its place
  std::vector<size_t> output_;          // by tensor: its index among the outputs of its op
  std::vector<int32_t> read_by_;        // by tensor that no op makes: the place that reads it
  std::vector<bool> speaks_far_;        // by place: a place that is no neighbour reads its output
  std::vector<Links> links_;            // by place
  std::vector<TensorId> own_;           // by tensor that no op makes: its equal in the next place
};

// Returns whether each rank runs only the stages of one place.
bool has_a_row_for_each_place(const ResolvedPlan& plan) {
  return std::ranges::all_of(plan.rows, [](const auto& row) { return row.size() == 1; });
}

// A `Shortening` makes the graph without the ops of the copies. In the shorter graph the original
// and the place after the copies are neighbours. Where the original has read tensors of its first
// copy, it reads the tensors of the place after the copies that the last copy has read. Where that
// place has read tensors of the last copy, it reads those of the original.
class Shortening {
 public:
  Shortening(const Graph& graph, const ResolvedPlan& plan,
             const std::vector<std::vector<OpId>>& ops, const CopiedPlaces& copied)
      : graph_(graph), plan_(plan), copied_(copied) {
    const auto &original = ops[copied.original.index()], &last = ops[copied.last().index()];
    op_for_.resize(graph.ops().size());
    last_of_.resize(graph.ops().size());
    tensor_for_.resize(graph.tensors().size());
    for (size_t i = 0; i < original.size(); ++i) {
      const Op &kept = graph.op(original[i]), &gone = graph.op(last[i]);
      op_for_[gone.id.index()] = kept.id;
      last_of_[kept.id.index()] = gone.id;
      for (size_t k = 0; k < kept.outputs.size(); ++k)
        tensor_for_[gone.outputs[k].index()] = kept.outputs[k];
    }
  }

  // Makes the shorter graph. Returns nothing if an op that stays reads a tensor that would be gone.
  std::optional<ShorterGraph> run() {
    std::vector<Op> stay;
    std::vector<bool> used(graph_.tensors().size());
    for (const Op& op : graph_.ops()) {
      if (is_gone(op.id)) continue;
      stay.push_back(op);
      for (size_t k = 0; k < op.inputs.size(); ++k) {
        TensorId& read = stay.back().inputs[k];
        read = operand(op, k);
        if (!read.valid()) return {};
        used[read.index()] = true;
      }
      for (const TensorId output : op.outputs) used[output.index()] = true;
    }
    for (size_t t = 0; t < used.size(); ++t) {
      if (!used[t]) continue;
      for (const auto link : {&Tensor::of, &Tensor::update_of}) {
        if (const TensorId stays = linked(TensorId(t), link); stays.valid())
          used[stays.index()] = true;
      }
    }
    add(used);
    made_plan_.ops.reserve(stay.size());
    for (Op& op : stay) {
      if (!add(std::move(op))) return {};
    }
    made_.name = graph_.name;
    made_.loss = now(graph_.loss);
    if (graph_.loss.valid() != made_.loss.valid()) return {};
    return ShorterGraph{copied_, std::make_shared<const Graph>(std::move(made_)),
                        std::move(made_plan_)};
  }

 private:
  bool is_gone(OpId op) const {
    return copied_.contains(plan_.place_of(plan_.ops[op.index()].stage));
  }

  // Returns the tensor that the op reads as input k in the shorter graph; invalid if the producer
  // of its input is gone and no other tensor replaces it.
  TensorId operand(const Op& op, size_t k) const {
    const OpId producer = graph_.tensor(op.inputs[k]).producer;
    const OpId last = last_of_[op.id.index()];
    if (!producer.valid() || !is_gone(producer)) return op.inputs[k];
    return last.valid() ? graph_.op(last).inputs[k] : tensor_for_[op.inputs[k].index()];
  }
  // Returns the tensor or, if its producer is gone, the original's tensor that replaces it.
  TensorId instead_of(TensorId id) const {
    if (!id.valid()) return id;
    const OpId producer = graph_.tensor(id).producer;
    return producer.valid() && is_gone(producer) ? tensor_for_[id.index()] : id;
  }
  // Returns the tensor to which `id` links by the member `link`. If that tensor is left out of the
  // shorter graph, returns the one to which the corresponding tensor of the last copy links.
  TensorId linked(TensorId id, TensorId Tensor::*link) const {
    const Tensor& tensor = graph_.tensor(id);
    const OpId gone = (tensor.*link).valid() ? graph_.tensor(tensor.*link).producer : OpId();
    if (!gone.valid() || !is_gone(gone)) return tensor.*link;
    const OpId last = tensor.producer.valid() ? last_of_[tensor.producer.index()] : OpId();
    if (!last.valid()) return tensor_for_[(tensor.*link).index()];
    const auto& made = graph_.op(tensor.producer).outputs;
    const auto at = static_cast<size_t>(std::ranges::find(made, id) - made.begin());
    return graph_.tensor(graph_.op(last).outputs[at]).*link;
  }
  TensorId now(TensorId id) const {
    const TensorId stays = instead_of(id);
    return stays.valid() ? now_[stays.index()] : stays;
  }

  // Adds the tensors that stay, in their old order, and their plans to the shorter graph and plan.
  void add(const std::vector<bool>& used) {
    made_plan_.plan = plan_.plan;
    made_plan_.stages = plan_.stages;
    made_plan_.places = plan_.places;
    made_plan_.rows = plan_.rows;
    made_plan_.schedule = plan_.schedule;
    made_plan_.ranks = plan_.ranks;
    made_plan_.devices = plan_.devices;
    made_plan_.tensors.reserve(static_cast<size_t>(std::ranges::count(used, true)));
    now_.resize(used.size());
    for (const Tensor& tensor : graph_.tensors()) {
      if (!used[tensor.id.index()]) continue;
      Tensor copy = tensor;
      copy.producer = OpId();
      copy.of = linked(tensor.id, &Tensor::of);
      copy.update_of = linked(tensor.id, &Tensor::update_of);
      now_[tensor.id.index()] = made_.add_tensor(std::move(copy));
      made_plan_.tensors.push_back(plan_.tensors[tensor.id.index()]);
    }
    for (size_t t = 0; t < made_.tensors().size(); ++t) {
      Tensor& tensor = made_.tensor(TensorId(t));
      tensor.of = now(tensor.of);
      tensor.update_of = now(tensor.update_of);
    }
    op_now_.resize(graph_.ops().size());
  }
  bool add(Op op) {
    const OpId old = op.id;
    for (TensorId& input : op.inputs) {
      const OpId producer = graph_.tensor(input).producer;
      // The producer is not added yet, so the ops would be out of order.
      if (producer.valid() && !op_now_[producer.index()].valid()) return false;
      input = now_[input.index()];
    }
    for (TensorId& output : op.outputs) output = now_[output.index()];
    if (op.mirror.valid()) {
      OpId stays = op.mirror;
      if (is_gone(stays)) {
        const OpId last = last_of_[old.index()];
        stays = last.valid() ? graph_.op(last).mirror : op_for_[stays.index()];
      }
      if (!stays.valid() || !op_now_[stays.index()].valid()) return false;
      op.mirror = op_now_[stays.index()];
    }
    op_now_[old.index()] = made_.add_op(std::move(op));
    made_plan_.ops.push_back(plan_.ops[old.index()]);
    return true;
  }

  const Graph& graph_;
  const ResolvedPlan& plan_;
  const CopiedPlaces copied_;
  // op_for_: by op of the last copy, the corresponding op of the original. last_of_: the reverse.
  std::vector<OpId> op_for_, last_of_;
  std::vector<TensorId> tensor_for_;  // by tensor that the last copy makes: the original's
  std::vector<TensorId> now_;         // by tensor: its id in the shorter graph
  std::vector<OpId> op_now_;          // by op: its id in the shorter graph
  Graph made_;
  ResolvedPlan made_plan_;
};

}  // namespace

std::vector<std::vector<OpId>> ops_by_place(const Graph& graph, const ResolvedPlan& plan) {
  std::vector<std::vector<OpId>> out(plan.places.size());
  for (const Op& op : graph.ops())
    out[plan.place_of(plan.ops[op.id.index()].stage).index()].push_back(op.id);
  return out;
}

std::optional<ShorterGraph> without_copies(const Graph& graph, const ResolvedPlan& plan) {
  constexpr size_t kOthers = 4;  // the fewest places that are no copies
  if (plan.places.size() < kOthers + kLeastCopies || !has_a_row_for_each_place(plan)) return {};
  PlaceComparison places(graph, plan);
  const CopiedPlaces copied = places.longest();
  if (copied.count < kLeastCopies) return {};
  return Shortening(graph, plan, places.ops(), copied).run();
}

}  // namespace tessera
