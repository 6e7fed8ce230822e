// Finds where each step of a time loop writes its piece or part of an output.
#include "tessera/program/walk/step_outputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tessera/program/walk/loop_pieces.h"
#include "tessera/program/walk/needs.h"

namespace tessera {
namespace {

// Makes all outputs leave out the same pieces. If a step must compute because one output needs its
// piece set in any case, the step makes the pieces of all outputs.
void leave_out_alike(std::vector<SteppedOutput>& outputs) {
  const bool computes = std::any_of(
      outputs.begin(), outputs.end(),
      [](const SteppedOutput& output) { return output.piece && output.piece->queries == 0; });
  for (SteppedOutput& output : outputs) {
    if (computes && output.piece) output.piece->leave_out_nowhere();
  }
}

// Returns whether what each rank makes is a region of what the rank holds at home, so that it can
// be written there.
bool refines(const Layout& made, const Layout& home) {
  bool within = made.at == home.at && made.grain == home.grain;
  for (size_t d = 0; d < made.shards.size() && within; ++d) {
    const Axes &finer = made.shards[d], &axes = home.shards[d];
    within = axes.size() <= finer.size() && std::equal(axes.begin(), axes.end(), finer.begin());
  }
  return within;
}

// Returns where a step writes its term of a sum made in place. Each step writes another region of
// the sum's buffer.
TextOutput write_term(const SteppedOutput& stepped, int64_t step) {
  const SumTerm& term = stepped.term;
  Region region = stepped.home.region;
  if (stepped.piece) {
    region.piece = stepped.piece;
    region.piece.own().step = step;
  }
  const bool fresh = term.first && (step == 0 || stepped.piece);
  const Write begins = term.across ? Write::kAddExceptFirst : Write::kSet;
  const Write write = fresh ? begins : Write::kAdd;
  return {{stepped.home.buffer, region}, term.sum, write, term.term, term.terms};
}

}  // namespace

std::vector<SteppedOutput> StepOutputs::prepare(const Op& op) {
  std::vector<SteppedOutput> outputs;
  for (size_t o = 0; o < op.outputs.size(); ++o) outputs.push_back(prepare_one(op, o));
  leave_out_alike(outputs);
  return outputs;
}

SteppedOutput StepOutputs::prepare_one(const Op& op, size_t output) {
  const Site site = facts_.site(op);
  const Mesh& mesh = facts_.mesh(site.place);
  const OpPlan& plan = facts_.op_plan(op);
  const TensorId tensor = op.outputs[output];
  SteppedOutput out;
  out.made = made_layout(op, plan, output, mesh, facts_.shape(tensor));
  out.piece = step_piece(op, plan, op.annotation.outputs[output], mesh, facts_.graph(), 0);
  if (const auto term = sums_.begin_term(site, tensor, out.made)) {
    out.term = *term;
    out.home = *sums_.made(facts_.tensor(term->sum).producer);
    return out;
  }
  Layout home = out.made;
  const Axes axes = homeward_axes(out, tensor, site.place);
  if (!axes.empty()) home.grain[out.piece->dim] = out.piece->grain;
  for (AxisId axis : axes) {
    erase_value(home.partial, axis);
    home.shards[out.piece->dim].push_back(axis);
  }
  home = normalise(std::move(home), mesh, facts_.shape(tensor));
  if (!axes.empty() && out.piece->skew.empty()) {
    out.reduce_axis = axes.front();
  } else {
    out.travel_axes = axes;
  }
  if (!axes.empty()) {
    leave_out_masked(facts_, op, *out.piece);
    if (out.piece->query_axes != axes) out.piece->leave_out_nowhere();
  }
  out.home.region = {home, std::nullopt};
  out.home.block = site.block;
  const TensorId old = facts_.tensor(tensor).update_of;
  const Held* rests = old.valid() ? holds_.home(site.place, old) : nullptr;
  if (rests != nullptr && refines(home, rests->region.layout)) {
    out.home.buffer = rests->buffer;  // the new value replaces the old one
  } else {
    out.home.buffer = writer_.new_buffer(site.place, tensor, "", out.home.region);
  }
  return out;
}

// Returns the axes over which the parts of a step's piece are summed, if the home is cut over the
// same axes along the looped dim. Each step's parts can then be sent home at once. Returns no axes
// if all parts must be collected and merged after the last step.
Axes StepOutputs::homeward_axes(const SteppedOutput& stepped, TensorId tensor,
                                PlaceId place) const {
  if (!stepped.piece || !stepped.piece->rims.empty() || stepped.made.combiner != Combiner::kSum)
    return {};
  const StepPiece& piece = *stepped.piece;
  const std::optional<Layout> target = destination(facts_, tensor, place, stepped.made);
  Axes extended = stepped.made.shards[piece.dim];
  if (!target || target->shards[piece.dim].size() <= extended.size()) return {};
  const Axes& wanted = target->shards[piece.dim];
  Axes axes = {wanted[extended.size()]};
  if (piece.order == StepOrder::kNested) {
    axes.clear();
    for (const SkewAxis& skew : piece.skew) axes.push_back(skew.axis);
  } else if (!piece.skew.empty() &&
             (!piece.skewed_by(axes[0]) || facts_.mesh(place).axis(axes[0]).size != piece.steps)) {
    return {};
  }
  extended.insert(extended.end(), axes.begin(), axes.end());
  const Axes& partial = stepped.made.partial;
  // An axis that also cuts a dim of the output does not count, as for parts of pieces that overlap.
  const bool parts = std::all_of(axes.begin(), axes.end(), [&](AxisId axis) {
    return std::find(partial.begin(), partial.end(), axis) != partial.end() &&
           !stepped.made.shards_over(axis);
  });
  const bool homeward = extended.size() <= wanted.size() &&
                        std::equal(extended.begin(), extended.end(), wanted.begin());
  return parts && homeward ? axes : Axes{};
}

// Returns how a micro-batch's output is written: added to the terms of earlier micro-batches if the
// tensor sums over micro-batches, else set. It is also set if each micro-batch's parts are sent to
// shards, because the buffer then has the parts of only one micro-batch.
Write StepOutputs::write_across(TensorId tensor, const Layout& home) const {
  const bool adds = facts_.sums_micro_batches(tensor) &&
                    !facts_.scatters_each_time(tensor, facts_.made_on(tensor), home);
  return adds ? Write::kAddExceptFirst : Write::kSet;
}

TextOutput StepOutputs::write(const Op& op, size_t output, SteppedOutput& stepped, int64_t step,
                              StepMoves& moves) {
  if (stepped.in_sum()) return write_term(stepped, step);
  const TensorId tensor = op.outputs[output];
  const Write across = write_across(tensor, stepped.home.region.layout);
  if (across == Write::kAddExceptFirst)
    writer_.buffer(facts_.place_of(op), stepped.home.buffer).accumulates = true;
  TextOutput out;
  out.tensor = tensor;
  if (!stepped.piece) {
    out.view = stepped.home.view();
    out.write = step == 0 ? across : Write::kAdd;
  } else if (!stepped.travel_axes.empty()) {
    out.view = travel(op, tensor, stepped, step, moves);
  } else if (stepped.reduce_axis) {
    out.view = reduce_to_holder(op, tensor, stepped, step, moves);
  } else {
    out.view = stepped.home.view();
    out.view.region.piece = stepped.piece;
    out.view.region.piece.own().step = step;
    out.write = across;
  }
  return out;
}

// Returns where a step puts its part, and adds to `moves` the reduction of the part to the rank
// that holds the step's piece at home.
TextView StepOutputs::reduce_to_holder(const Op& op, TensorId tensor, const SteppedOutput& stepped,
                                       int64_t step, StepMoves& moves) {
  const PlaceId place = facts_.place_of(op);
  const bool over_micro_batches = facts_.sums_micro_batches(tensor);
  StepPiece piece = *stepped.piece;
  piece.step = step;
  const Region part{stepped.made, piece};
  TextView made{writer_.new_buffer(place, tensor, fmt::format("part{}", step), part), part};
  piece.leave_out_nowhere();  // the holder receives the piece even if it makes no part itself
  const Region mine{stepped.home.region.layout, piece};
  TextView arrives{stepped.home.buffer, mine};
  if (over_micro_batches)
    arrives.buffer = writer_.new_buffer(place, tensor, fmt::format("arrive{}", step), mine);
  TextIssue issue;
  issue.handle = writer_.new_handle();
  issue.classify = true;
  issue.axes = {*stepped.reduce_axis};
  issue.combiner = stepped.made.combiner;
  issue.transfers.push_back({tensor, made, arrives});
  moves.due.push_back(issue.handle);
  moves.sends.push_back({std::move(issue), When::kAlways, op.id});
  if (over_micro_batches) {
    const TextView home{stepped.home.buffer, mine};
    moves.arrivals.push_back(
        {TextCopy{tensor, arrives, home, write_across(tensor, home.region.layout)}, When::kAlways,
         op.id});
  }
  return made;
}

// Returns where a step puts its part of a sum that travels around the ring. Step 0 starts the sum.
// Later steps make their part, which is added to the sum that has come from the previous rank. The
// sum then moves on while the next step computes.
TextView StepOutputs::travel(const Op& op, TensorId tensor, SteppedOutput& stepped, int64_t step,
                             StepMoves& moves) {
  const PlaceId place = facts_.place_of(op);
  const StepPiece& loop = *stepped.piece;
  const auto region = [&](int64_t at, bool limited) {
    Region out{stepped.made, loop};
    out.piece.own().step = at;
    if (!limited) out.piece.own().leave_out_nowhere();
    return out;
  };
  Region part = region(step, true);
  TextView made;
  if (step == 0) {
    stepped.sum.region = region(0, false);
    stepped.sum.buffer = writer_.new_buffer(place, tensor, "sum0", stepped.sum.region);
    made = stepped.sum.view();
  } else {
    made = {writer_.new_buffer(place, tensor, fmt::format("part{}", step), part), part};
    const TextView sum{stepped.sum.buffer, part};
    moves.sends.push_back({TextCopy{tensor, made, sum, Write::kAdd}, When::kAlways, op.id});
  }
  const bool last = step + 1 == loop.steps;
  const bool over_micro_batches = facts_.sums_micro_batches(tensor);
  Held next = stepped.home;
  if (!last) next.region = region(step + 1, false);
  if (!last || over_micro_batches) {
    next.buffer = writer_.new_buffer(place, tensor,
                                     last ? "arrive" : fmt::format("sum{}", step + 1), next.region);
  }
  TextIssue issue;
  issue.handle = writer_.new_handle();
  issue.classify = true;
  issue.axes = stepped.travel_axes;
  if (loop.order == StepOrder::kNested && (step + 1) % inner_steps(loop, facts_.mesh(place)) != 0)
    issue.axes = {loop.skew.back().axis};
  issue.transfers.push_back({tensor, stepped.sum.view(), next.view()});
  if (last) moves.due.push_back(issue.handle);
  moves.sends.push_back({std::move(issue), When::kAlways, op.id});
  stepped.sum = next;
  if (!last) return made;
  if (over_micro_batches) {
    moves.arrivals.push_back({TextCopy{tensor, next.view(), stepped.home.view(),
                                       write_across(tensor, stepped.home.region.layout)},
                              When::kAlways, op.id});
  }
  return made;
}

}  // namespace tessera
