#include "tessera/plan/stages.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string_view>

#include "tessera/graph/ahead.h"
#include "tessera/graph/kinds.h"
#include "tessera/graph/optimizers.h"

namespace tessera {
namespace {

// Returns the parameter p if the tensor is the gradient of p or of the narrow copy of p; else an
// invalid id.
TensorId differentiated_parameter(const Graph& graph, const Tensor& tensor) {
  const bool is_gradient = tensor.role == Role::kGradient && tensor.of.valid();
  if (!is_gradient) return {};
  if (graph.tensor(tensor.of).role == Role::kParameter) return tensor.of;
  return graph.is_parameter_gradient(tensor.id) ? graph.parameter_of(tensor.of) : TensorId();
}

}  // namespace

Stages::Stages(const Plan& plan, const Graph& graph, ResolvedPlan& out)
    : plan_(plan), graph_(graph), out_(out), updates_(updated_parameters(graph)) {
  first_consumer_.resize(graph.tensors().size());
  of_parameters_.resize(graph.tensors().size());
  of_sources_.resize(graph.tensors().size());
  for (const Op& op : graph.ops()) {
    bool alone = !op.inputs.empty();
    for (const TensorId input : op.inputs) {
      OpId& first = first_consumer_[input.index()];
      if (!first.valid()) first = op.id;
      alone &= graph.tensor(input).role == Role::kParameter || of_parameters_[input.index()];
    }
    for (const TensorId output : op.outputs) of_parameters_[output.index()] = alone;
  }
}

Status Stages::assign(Selection& selection) {
  for (size_t e = 0; e < plan_.stages.size(); ++e) {
    const StageEntry& entry = plan_.stages[e];
    TESSERA_TRY(const auto selected, selection.ops(entry.ops, Phase::kForward, entry.line));
    for (OpId op : selected) {
      out_.ops[op.index()].stage = StageId(static_cast<int32_t>(entry.at));
      out_.ops[op.index()].stage_entry = static_cast<int>(e);
    }
  }
  complete_forward();
  find_earliest_consumers();
  StageId previous(0);
  for (const Op& op : graph_.ops()) {
    OpPlan& op_plan = out_.ops[op.id.index()];
    if (op.phase == Phase::kBackward) op_plan.stage = backward(op, previous);
    if (op.phase == Phase::kUpdate) op_plan.stage = update(op);
    previous = op_plan.stage;
  }
  return {};
}

bool Stages::is_named(const Op& op) const { return out_.ops[op.id.index()].stage_entry >= 0; }

StageId& Stages::stage_of(const Op& op) { return out_.ops[op.id.index()].stage; }

// Sets the stage of each forward op that no entry names. This is the stage of the nearest named op
// before it, else that of the first named op, but never earlier than the stage at which an operand
// is made. If the steps of a loop have stages of their own, the stages of step s are shifted by s
// times the number of named stages.
void Stages::complete_forward() {
  const auto first = std::ranges::find_if(graph_.ops(), [&](const Op& op) {
    return op.phase == Phase::kForward && stage_of(op).valid();
  });
  StageId current = first == graph_.ops().end() ? StageId(0) : stage_of(*first);
  const auto named = static_cast<int32_t>(plan_.named_stages());
  const std::vector<bool> behind = behind_updates(graph_);
  std::map<std::string_view, StageId> of_first_step;
  for (const Op& op : graph_.ops()) {
    if (op.phase != Phase::kForward) continue;
    StageId& stage = stage_of(op);
    const bool is_named = stage.valid();
    if (behind[op.id.index()] && !is_named) continue;
    if (is_named) current = stage;
    // The steps of a written-out loop are in the graph one after the other. An op of a later step
    // gets the stage of the same op in the first step.
    const std::string_view whole = std::string_view(op.path).substr(0, op.path.find('#'));
    const bool in_steps = whole.size() < op.path.size() && op.step < 0;
    if (in_steps && !is_named) {
      const auto known = of_first_step.find(whole);
      if (known != of_first_step.end()) current = known->second;
    }
    stage = StageId(current.value + std::max(0, op.step) * named);
    if (in_steps) of_first_step.try_emplace(whole, stage);
    if (is_named) continue;
    bool of_sources = true;
    for (const TensorId input : op.inputs) {
      const OpId producer = graph_.tensor(input).producer;
      if (!producer.valid() || may_hasten(input)) continue;
      of_sources = false;
      stage = std::max(stage, out_.ops[producer.index()].stage);
    }
    for (const TensorId output : op.outputs) of_sources_[output.index()] = of_sources;
  }
  hasten_sources();
  const bool ahead = std::any_of(graph_.ops().begin(), graph_.ops().end(), [&](const Op& op) {
    return op.phase == Phase::kForward && behind[op.id.index()];
  });
  if (!ahead) return;
  place_ahead(behind);
  hasten_sources();
}

// Sets the stage of each op that works for the next training step and that no entry names. This is
// the first stage that reads the output of the op in the next step.
void Stages::place_ahead(const std::vector<bool>& behind) {
  std::vector<StageId> first(graph_.tensors().size(), StageId(INT32_MAX));
  const auto reads = [&](const Op& op, StageId stage) {
    for (const TensorId input : op.inputs)
      first[input.index()] = std::min(first[input.index()], stage);
  };
  for (const Op& op : graph_.ops()) {
    if (op.phase == Phase::kForward && stage_of(op).valid()) reads(op, stage_of(op));
  }
  for (auto op = graph_.ops().rbegin(); op != graph_.ops().rend(); ++op) {
    if (!behind[op->id.index()]) continue;
    for (const TensorId output : op->outputs) {
      const TensorId buffer = graph_.tensor(output).update_of;
      const bool carries = buffer.valid() && graph_.tensor(buffer).role == Role::kBuffer;
      if (carries) reads(*op, first[buffer.index()]);
      StageId& stage = stage_of(*op);
      if (op->phase == Phase::kForward && !stage.valid()) stage = first[output.index()];
    }
    if (op->phase != Phase::kForward) continue;
    if (stage_of(*op) == StageId(INT32_MAX)) stage_of(*op) = StageId(0);
    reads(*op, stage_of(*op));
  }
}

bool Stages::may_hasten(TensorId made) const {
  return of_parameters_[made.index()] || of_sources_[made.index()];
}

// Moves ops whose results are computed from parameters and inputs alone (the cast of a weight, a
// loop's slice of it). An op that no entry names moves to the first stage that reads its result,
// earlier or later, because a parameter rests with its first reader. An op that an entry names may
// only move to an earlier stage that reads its result. This happens for a weight that several
// passes share: its cast has the name of a block of the last pass, but an earlier pass may read it
// at an earlier stage.
void Stages::hasten_sources() {
  std::vector<StageId> first(graph_.tensors().size(), StageId(INT32_MAX));
  for (auto op = graph_.ops().rbegin(); op != graph_.ops().rend(); ++op) {
    if (op->phase != Phase::kForward || !stage_of(*op).valid()) continue;
    StageId& stage = stage_of(*op);
    StageId reads(INT32_MAX);
    for (const TensorId output : op->outputs) {
      if (may_hasten(output)) reads = std::min(reads, first[output.index()]);
    }
    const bool is_free = !is_named(*op) && reads != StageId(INT32_MAX);
    if (is_free || reads < stage) stage = reads;
    for (const TensorId input : op->inputs)
      first[input.index()] = std::min(first[input.index()], stage);
  }
}

void Stages::find_earliest_consumers() {
  for (const Op& op : graph_.ops()) {
    if (op.phase != Phase::kForward) continue;
    for (const TensorId input : op.inputs) {
      OpId& first = first_consumer_[input.index()];
      if (stage_of(op) < stage_of(graph_.op(first))) first = op.id;
    }
  }
}

StageId Stages::backward(const Op& op, StageId previous) const {
  // A clone of a forward op that is computed again gets the stage of the original, even if it is a
  // sum of terms that are made at another stage. Its result is read at that stage, and tensors that
  // go from stage to stage are kept and not computed again.
  const bool again = op.mirror.valid() && graph_.tensor(op.outputs[0]).role != Role::kGradient;
  if (again) return out_.ops[op.mirror.index()].stage;
  if (op.mirror.valid()) return of_terms(op).value_or(out_.ops[op.mirror.index()].stage);
  if (const auto stage = of_terms(op)) return *stage;
  for (TensorId output : op.outputs) {  // a seed has the stage of the tensor that it differentiates
    const TensorId of = graph_.tensor(output).of;
    if (of.valid()) return home(of);
  }
  return previous;
}

// Returns the stage at which all terms of a sum are made; nothing if they are made at several
// stages or the op is no sum. A sum is computed at the stage of its terms, so that only its result
// goes to another stage.
std::optional<StageId> Stages::of_terms(const Op& op) const {
  std::optional<StageId> stage;
  const bool settles = info_of(op).scales && !op.mirror.valid();  // a sum of one term
  if (!merges_terms(op) && !settles) return stage;
  for (TensorId input : op.inputs) {
    const OpId producer = graph_.tensor(input).producer;
    if (!producer.valid()) return std::nullopt;
    const StageId made = out_.ops[producer.index()].stage;
    if (stage && *stage != made) return std::nullopt;
    stage = made;
  }
  return stage;
}

StageId Stages::update(const Op& op) const {
  for (TensorId output : op.outputs) {
    const TensorId updated = graph_.tensor(output).update_of;
    if (updated.valid()) return home(updated);
  }
  const TensorId parameter = updates_[op.id.index()];
  if (parameter.valid()) return home(parameter);
  if (const auto stage = of_terms(op)) return *stage;
  // A sum of terms from several stages is at the earliest of these stages, because the last
  // gradients are made there. Other ops (the clip coefficient) are at stage 0.
  StageId earliest(INT32_MAX);
  for (TensorId input : op.inputs) {
    const OpId producer = graph_.tensor(input).producer;
    if (merges_terms(op) && producer.valid())
      earliest = std::min(earliest, out_.ops[producer.index()].stage);
  }
  return earliest == StageId(INT32_MAX) ? StageId(0) : earliest;
}

StageId Stages::home(TensorId id) const {
  const Tensor& tensor = graph_.tensor(id);
  if (tensor.update_of.valid()) return home(tensor.update_of);
  if (tensor.role == Role::kOptimizerState && tensor.of.valid()) return home(tensor.of);
  if (const TensorId of = differentiated_parameter(graph_, tensor); of.valid()) return home(of);
  const OpId op = tensor.producer.valid() ? tensor.producer : reader_of(id);
  const StageId stage = op.valid() ? out_.ops[op.index()].stage : StageId(0);
  return stage.valid() ? stage : StageId(0);
}

// Returns the op whose stage becomes the home of a tensor at rest. This is the first op that reads
// the tensor. If only updates read it, it is the first op that reads the updated value instead,
// which an op that works ahead does (graph/ahead.h).
OpId Stages::reader_of(TensorId id) const {
  const OpId first = first_consumer_[id.index()];
  if (!first.valid() || graph_.op(first).phase != Phase::kUpdate) return first;
  for (const TensorId made : graph_.op(first).outputs) {
    const OpId next = first_consumer_[made.index()];
    const bool reads = graph_.tensor(made).update_of == id && next.valid();
    if (reads && graph_.op(next).phase != Phase::kUpdate) return next;
  }
  return first;
}

Status Stages::check() const {
  std::vector<bool> used(out_.stages.size(), false);
  for (const Op& op : graph_.ops()) {
    if (op.phase != Phase::kForward) continue;
    const OpPlan& here = out_.ops[op.id.index()];
    used[here.stage.index()] = true;
    for (TensorId input : op.inputs) {
      const OpId producer = graph_.tensor(input).producer;
      if (!producer.valid() || out_.ops[producer.index()].stage <= here.stage) continue;
      const int entry =
          here.stage_entry >= 0 ? here.stage_entry : out_.ops[producer.index()].stage_entry;
      return plan_error(
          plan_, entry >= 0 ? plan_.stages[static_cast<size_t>(entry)].line : 0,
          fmt::format("op '{}' at stage {} reads '{}', which op '{}' makes at the later stage {}",
                      op.path, here.stage.value, graph_.tensor(input).name,
                      graph_.op(producer).path, out_.ops[producer.index()].stage.value));
    }
  }
  for (size_t s = 0; s < used.size() && !plan_.stages.empty(); ++s) {
    if (used[s]) continue;
    int line = 0;
    for (const StageEntry& entry : plan_.stages) {
      if (entry.at == static_cast<int64_t>(s)) line = entry.line;
    }
    return plan_error(
        plan_, line,
        fmt::format("stage {} has no ops: later entries move all of them elsewhere", s));
  }
  return {};
}

}  // namespace tessera
