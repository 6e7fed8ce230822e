// Writes out time loops over more than one op: every op of the loop is added once for each step.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "tessera/base/text.h"
#include "tessera/graph/builder.h"
#include "tessera/graph/kinds.h"
#include "tessera/graph/loop_facts.h"
#include "tessera/graph/transform.h"
#include "tessera/graph/within.h"

namespace tessera {
namespace {

using Part = LoopFacts::Part;
using Need = LoopFacts::Need;
constexpr int kReduced = LoopFacts::kReduced;

class UnrollPass {
 public:
  // All arguments outlive the object.
  UnrollPass(const Graph& from, const LoopFacts& loop, const Unrolling& how)
      : from_(from),
        loop_(loop),
        how_(how),
        to_(from.name),
        whole_(from.tensors().size()),
        pieces_(from.tensors().size()),
        in_run_(from.tensors().size(), false) {}

  Result<Graph> run() {
    for (const Tensor& tensor : from_.tensors()) {
      if (tensor.producer.valid()) continue;
      if (loop_.pieces_at_rest(tensor.id) != nullptr) {
        add_pieces(tensor);
      } else {
        whole_[tensor.id.index()] = to_.graph().add_tensor(tensor);
      }
    }
    for (const Op& op : from_.ops()) {
      if (loop_.has(op)) {
        if (waits_for_run(op)) {
          if (how_.stages) return waits_in_stages(op);
          flush();
        }
        run_.push_back(op.id);
        for (const TensorId output : op.outputs) in_run_[output.index()] = true;
      } else {
        const bool reads_run = std::any_of(op.inputs.begin(), op.inputs.end(),
                                           [&](TensorId id) { return in_run_[id.index()]; });
        if (reads_run) flush();
        copy(op);
      }
      if (!to_.ok()) break;
    }
    flush();
    if (to_.ok() && from_.loss.valid()) to_.graph().loss = whole_[from_.loss.index()];
    return to_.finish();
  }

 private:
  struct Pieces {
    int position = kReduced;
    std::vector<TensorId> by_step;
  };

  bool waits_for_run(const Op& op) const { return waits_for(op) < op.inputs.size(); }
  size_t waits_for(const Op& op) const {
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      if (in_run_[op.inputs[i].index()] && !loop_.reads_pieces(op, i)) return i;
    }
    return op.inputs.size();
  }

  tl::unexpected<Error> waits_in_stages(const Op& op) const {
    const std::string& name = from_.tensor(op.inputs[waits_for(op)]).name;
    return invalid_input(
        fmt::format("op '{}' ({}) reads '{}' of all steps over dim '{}': steps that are stages "
                    "may read earlier steps only (attention: causal = 1)",
                    op.path, op.kind, name, how_.dim));
  }

  void add_pieces(const Tensor& tensor) {
    const Op& reader = *loop_.pieces_at_rest(tensor.id);
    for (size_t step = 0; step < loop_.steps(); ++step) {
      Tensor part = tensor;
      part.name = fmt::format("{}#{}", tensor.name, step);
      part.dims[0].size = loop_.piece(reader, tensor.dims[0].size, step).size;
      parts_[{tensor.id, 0, static_cast<int>(Part::kPiece), step}] =
          to_.graph().add_tensor(std::move(part));
    }
  }

  // ---- what an op reads
  // ------------------------------------------------------------------------
  TensorId operand(const Op& op, size_t i, size_t step) {
    const TensorId id = op.inputs[i];
    const Need how = loop_.need(op, i);
    if (how.part == Part::kWhole) return whole_[id.index()];
    const bool made_by_step = loop_.reads_pieces(op, i);
    if (how.part == Part::kPiece && made_by_step) return pieces_[id.index()].by_step[step];
    TensorId& known = parts_[{id, how.position, static_cast<int>(how.part), step}];
    if (!known.valid()) {
      known = made_by_step ? joined_up_to(op, i, step) : cut(op, i, how, step);
    }
    return known;
  }

  // Cuts the step's part from a tensor that the steps do not make.
  TensorId cut(const Op& op, size_t i, const Need& how, size_t step) {
    const TensorId x = whole_[op.inputs[i].index()];
    const Dim dim = to_.tensor(x).dims[static_cast<size_t>(how.position)];
    const Interval own = loop_.piece(op, dim.size, step);
    const bool up_to = how.part == Part::kUpToPiece;
    const int64_t begin = up_to ? 0 : own.begin / how_.blocks;
    const int64_t end = (own.end() + how_.blocks - 1) / how_.blocks;  // in the longest block
    if (up_to && step + 1 == loop_.steps()) return x;
    const TensorId part = to_.op1(
        fmt::format("{}@part{}#{}", op.path, i, step), "slice", {x},
        {{"dim", dim.name}, {"begin", begin}, {"size", end - begin}, {"blocks", how_.blocks}});
    const bool at_rest = !from_.tensor(op.inputs[i]).producer.valid();
    if (part.valid()) to_.graph().tensor(part).recompute = at_rest || how_.recompute;
    return part;
  }

  // Joins the pieces of the steps so far. Only the pieces are kept for the backward pass, because
  // joined copies kept for all steps would need memory that grows with the square of the dim.
  TensorId joined_up_to(const Op& op, size_t i, size_t step) {
    const Pieces& pieces = pieces_[op.inputs[i].index()];
    if (step == 0) return pieces.by_step[0];
    const auto end = pieces.by_step.begin() + static_cast<std::ptrdiff_t>(step) + 1;
    const std::string dim =
        from_.tensor(op.inputs[i]).dims[static_cast<size_t>(pieces.position)].name;
    const TensorId joined = to_.op1(fmt::format("{}@part{}#{}", op.path, i, step), "concat",
                                    {pieces.by_step.begin(), end}, {{"dim", dim}});
    if (joined.valid()) to_.graph().tensor(joined).recompute = true;
    return joined;
  }

  // ---- what is made
  // ----------------------------------------------------------------------------
  void copy(const Op& op) {
    std::vector<TensorId> inputs;
    for (const TensorId input : op.inputs) inputs.push_back(whole_[input.index()]);
    to_.set_step(how_.stages ? (flushed_ ? static_cast<int>(loop_.steps()) - 1 : 0) : op.step);
    const std::vector<TensorId> outputs = to_.op(op.path, op.kind, inputs, op.attributes);
    for (size_t o = 0; o < outputs.size() && to_.ok(); ++o) {
      Tensor& made = to_.graph().tensor(outputs[o]);
      made.name = from_.tensor(op.outputs[o]).name;
      made.recompute = from_.tensor(op.outputs[o]).recompute;
      whole_[op.outputs[o].index()] = outputs[o];
    }
  }

  // Adds all steps of the waiting ops, step by step, and joins the outputs that other ops read as
  // a whole.
  void flush() {
    for (size_t step = 0; step < loop_.steps() && to_.ok(); ++step) {
      for (const OpId id : run_) {
        if (to_.ok()) clone(from_.op(id), step);
      }
    }
    for (const OpId id : run_) {
      const Op& op = from_.op(id);
      for (size_t o = 0; o < op.outputs.size() && to_.ok(); ++o) {
        in_run_[op.outputs[o].index()] = false;
        if (loop_.is_joined(op.outputs[o])) join(op, o);
      }
    }
    flushed_ = flushed_ || !run_.empty();
    run_.clear();
  }

  void clone(const Op& op, size_t step) {
    std::vector<TensorId> inputs;
    to_.set_step(how_.stages ? static_cast<int>(step) : op.step);
    for (size_t i = 0; i < op.inputs.size() && to_.ok(); ++i) {
      inputs.push_back(operand(op, i, step));
    }
    Attributes attributes = attributes_of(op, step);
    const KindInfo& kind = info_of(op);
    const auto once = static_cast<size_t>(kind.added_once);
    if (step > 0 && kind.added_once >= 0 && once < op.inputs.size() && loop_.sums(op)) {
      inputs.erase(inputs.begin() + kind.added_once);
      for (const auto& [name, value] : kind.without_added(op)) attributes[name] = value;
    }
    const std::vector<TensorId> outputs =
        to_.op(fmt::format("{}#{}", op.path, step), op.kind, inputs, attributes);
    if (!to_.ok()) return;
    for (size_t o = 0; o < outputs.size(); ++o) {
      const TensorId original = op.outputs[o];
      Tensor& made = to_.graph().tensor(outputs[o]);
      made.name = fmt::format("{}#{}", from_.tensor(original).name, step);
      made.recompute = how_.recompute || from_.tensor(original).recompute;
      pieces_[original.index()].position = loop_.made_position(original);
      pieces_[original.index()].by_step.push_back(outputs[o]);
    }
  }

  Attributes attributes_of(const Op& op, size_t step) const {
    Attributes attributes = op.attributes;
    for (const std::string& key : info_of(op).size_attributes) {
      std::vector<std::string> items = split_text(op.text(key), ' ');
      for (std::string& item : items) {
        if (!item.starts_with(how_.dim + "=")) continue;
        item = fmt::format("{}={}", how_.dim, loop_.piece(op, loop_.size_of(op), step).size);
      }
      attributes[key] = tessera::join(items, " ");
    }
    if (position_rule(op, op.annotation.find(how_.dim)) == PositionRule::kWithin) {
      const int64_t size = loop_.size_of(op), begin = loop_.piece(op, size, step).begin;
      const Within place{how_.dim, begin / how_.blocks, size, how_.blocks};
      const std::string before = op.text("within");
      attributes["within"] = before + (before.empty() ? "" : " ") + to_string({place});
    }
    return attributes;
  }

  void join(const Op& op, size_t output) {
    const TensorId original = op.outputs[output];
    const Tensor& tensor = from_.tensor(original);
    const Pieces& pieces = pieces_[original.index()];
    const std::string& path = op.outputs.size() == 1 ? op.path : tensor.name;
    to_.set_step(how_.stages ? static_cast<int>(loop_.steps()) - 1 : op.step);
    TensorId& whole = whole_[original.index()];
    if (loop_.steps() == 1) {
      whole = pieces.by_step[0];
    } else if (pieces.position == kReduced) {
      whole = to_.op1(path, "add_n", pieces.by_step);
    } else {
      whole = to_.op1(path, "concat", pieces.by_step,
                      {{"dim", tensor.dims[static_cast<size_t>(pieces.position)].name},
                       {"blocks", how_.blocks}});
    }
    if (whole.valid()) {
      to_.graph().tensor(whole).name = tensor.name;
      to_.graph().tensor(whole).recompute = tensor.recompute;
    }
  }

  const Graph& from_;
  const LoopFacts& loop_;
  const Unrolling& how_;
  GraphBuilder to_;
  std::vector<TensorId> whole_;  // by tensor of from_; invalid: not (or not yet) made as a whole
  std::vector<Pieces> pieces_;   // by tensor of from_
  std::vector<bool> in_run_;     // by tensor of from_: whether a waiting op makes it
  std::vector<OpId> run_;        // ops of the loop whose steps are not added yet
  bool flushed_ = false;
  // Parts of operands by tensor, position, Part and step.
  std::map<std::tuple<TensorId, int, int, size_t>, TensorId> parts_;
};

}  // namespace

Result<Graph> unroll(const Graph& forward, const std::vector<bool>& ops, const Unrolling& how) {
  TESSERA_TRY(const LoopFacts loop, LoopFacts::find(forward, ops, how));
  return UnrollPass(forward, loop, how).run();
}

}  // namespace tessera
