// The walk over ops. First tensors at rest get their homes. Then each op is written with its steps;
// updates, and ops that read results of updates, come after all other ops. Last come the fetches at
// the end of the step. The files in tessera/program/walk handle the operands and outputs of an op.
#include "tessera/program/walk.h"

#include <algorithm>
#include <utility>

#include "tessera/base/check.h"
#include "tessera/graph/ahead.h"
#include "tessera/program/walk/bring_home.h"
#include "tessera/program/walk/linear_parts.h"
#include "tessera/program/walk/materialise.h"
#include "tessera/program/walk/step_operands.h"
#include "tessera/program/walk/step_outputs.h"

namespace tessera {
namespace {

class Walker {
 public:
  Walker(const WalkInput& input, Analysis& analysis)
      : graph_(*input.graph),
        fetch_(input.fetch),
        facts_(graph_, *input.plan, analysis),
        paths_(facts_, input.paths) {}

  std::vector<PlaceText> run() {
    for (const Tensor& tensor : graph_.tensors()) place_persistent(tensor);
    const std::vector<bool> behind = behind_updates(graph_);
    for (const Op& op : graph_.ops()) {
      if (!behind[op.id.index()]) walk(op);
    }
    sharded_.finish();
    for (const Op& op : graph_.ops()) {
      if (behind[op.id.index()]) walk(op);
    }
    fetch_all();
    rest_in_tiers();
    return writer_.take();
  }

 private:
  void place_persistent(const Tensor& tensor);
  void walk(const Op& op);
  void walk_steps(const Op& op);
  void fetch_all();
  void rest_in_tiers();
  bool is_gradient_of_parameter(const Tensor& tensor) const;

  const Graph& graph_;
  const std::vector<TensorId>& fetch_;
  Facts facts_;
  TextWriter writer_{facts_};
  ConversionPaths paths_;
  Holds holds_{facts_, paths_};
  Converter converter_{facts_, paths_, writer_};
  Loads loads_{facts_, writer_};
  NamedRowsMover named_{facts_, paths_, writer_, loads_};
  Completion completion_{facts_, paths_, holds_, converter_, named_};
  BetweenPlaces between_{facts_, writer_, holds_, converter_, completion_};
  Materialiser materialiser_{facts_, writer_, holds_, converter_, between_, loads_, named_};
  SumsInPlace sums_{facts_, writer_, paths_};
  StepOperands operands_{facts_, writer_, materialiser_};
  StepOutputs outputs_{facts_, writer_, holds_, sums_};
  ShardedGradients sharded_{facts_, writer_, holds_, converter_};
  BringHome home_{facts_, writer_, holds_, converter_, completion_, between_, sharded_};
};

void Walker::place_persistent(const Tensor& tensor) {
  if (tensor.update_of.valid()) return;
  if (tensor.role != Role::kParameter && tensor.role != Role::kBuffer &&
      tensor.role != Role::kOptimizerState)
    return;
  if (facts_.readers(tensor.id).empty()) return;
  const OfPlace<Layout>& home = facts_.analysis().homes[tensor.id.index()];
  const PlaceId place = home.place();
  const Region region{home.at(place), std::nullopt};
  const int index = writer_.new_buffer(place, tensor.id, "", region);
  TextBuffer& buffer = writer_.buffer(place, index);
  buffer.persistent = true;
  buffer.tier = facts_.tensor_plan(tensor.id).tier;
  writer_.text(place).homes.push_back({tensor.id, index});
  holds_.set_home(place, tensor.id, {index, region, -1, BlockKind::kPrologue});
}

void Walker::walk(const Op& op) {
  if (const Held* sum = sums_.made(op.id)) {  // the sum was made in place by its terms
    home_.produced(op, op.outputs[0], *sum);
  } else if (const auto parts = parts_of(facts_, holds_, paths_, op)) {
    const Held made = work_on_parts(facts_, writer_, op, *parts);
    home_.produced(op, op.outputs[0], made);
  } else {
    walk_steps(op);
  }
}

// Writes the op's time loop with double buffering: while a step computes, the operands of the next
// step and the parts that the previous step has made are sent. An op without a loop has one step.
void Walker::walk_steps(const Op& op) {
  const Site site = facts_.site(op);
  const LoopOf loop = loop_of(facts_.op_plan(op));
  const int64_t steps = loop.steps;
  std::vector<SteppedOperand> operands;
  for (size_t i = 0; i < op.inputs.size(); ++i) operands.push_back(operands_.prepare(op, i));
  std::vector<SteppedOutput> outputs = outputs_.prepare(op);
  const auto fetch = [&](int64_t step) {
    for (size_t i = 0; i < operands.size(); ++i) operands_.fetch(op, i, operands[i], step);
  };
  const auto emit_all = [&](std::vector<TextInstruction>& instructions) {
    for (TextInstruction& instruction : instructions)
      writer_.emit(site.place, site.block, std::move(instruction));
  };
  // If the steps only make pieces of outputs, they may run in any order. If they add to a sum, they
  // must begin with step 0.
  const bool pieces =
      std::ranges::all_of(outputs, [](const SteppedOutput& output) { return output.in_pieces(); });
  std::vector<int64_t> order = order_of_steps(operands, steps);
  if (!pieces) std::ranges::sort(order);
  fetch(order[0]);
  StepMoves before;
  const auto arrive = [&] {
    for (const int handle : before.due) writer_.due(site.place, handle);
    emit_all(before.arrivals);
  };
  for (size_t s = 0; s < order.size(); ++s) {
    const int64_t step = order[s];
    TextCompute compute;
    compute.op = op.id;
    compute.step = step;
    for (const SteppedOperand& operand : operands)
      compute.inputs.push_back(operand.by_step.back().view());
    if (s + 1 < order.size()) fetch(order[s + 1]);
    StepMoves moves;
    for (size_t o = 0; o < outputs.size(); ++o)
      compute.outputs.push_back(outputs_.write(op, o, outputs[o], step, moves));
    writer_.emit(site, std::move(compute));
    emit_all(moves.sends);
    arrive();
    before = std::move(moves);
  }
  arrive();
  for (size_t i = 0; i < operands.size(); ++i) operands_.share(op, i, operands[i]);
  for (size_t o = 0; o < outputs.size(); ++o) {
    if (!outputs[o].in_sum()) home_.produced(op, op.outputs[o], outputs[o].home);
  }
}

// Completes the fetched tensors in the update block: the loss, and the tensors that were asked for.
void Walker::fetch_all() {
  std::vector<TensorId> wanted = fetch_;
  const TensorId loss = graph_.loss;
  if (loss.valid() && std::find(wanted.begin(), wanted.end(), loss) == wanted.end())
    wanted.insert(wanted.begin(), loss);
  for (TensorId tensor : wanted) {
    const Tensor& t = graph_.tensor(tensor);
    const Site site{facts_.made_on(tensor), BlockKind::kUpdate, t.producer};
    const Held* hold = holds_.best(site.place, tensor, site.block, nullptr);
    TESSERA_CHECK(hold != nullptr, "fetched tensor '{}' is held nowhere", t.name);
    Held held = *hold;
    if (!held.region.layout->complete())
      held = completion_.complete(site, tensor, held, std::nullopt);
    writer_.text(site.place).fetches.push_back({tensor, held.buffer});
  }
}

// Puts the buffers of parameter gradients and of activations into the tiers in which the plan keeps
// them until they are read.
void Walker::rest_in_tiers() {
  for (size_t p = 0; p < writer_.places(); ++p) {
    for (const auto& [id, held] : holds_.homes(PlaceId(p))) {
      const Tensor& tensor = graph_.tensor(id);
      const bool activation =
          tensor.producer.valid() && graph_.op(tensor.producer).phase == Phase::kForward;
      if (!activation && !is_gradient_of_parameter(tensor)) continue;
      writer_.buffer(PlaceId(p), held->buffer).tier = facts_.tensor_plan(id).tier;
    }
  }
}

// Returns whether the tensor is the gradient of a parameter itself; Graph::is_parameter_gradient
// accepts the gradient of its narrow copy too.
bool Walker::is_gradient_of_parameter(const Tensor& tensor) const {
  return tensor.role == Role::kGradient && tensor.of.valid() &&
         graph_.tensor(tensor.of).role == Role::kParameter;
}

}  // namespace

std::vector<PlaceText> write_place_texts(const WalkInput& input, Analysis& analysis) {
  return Walker(input, analysis).run();
}

}  // namespace tessera
