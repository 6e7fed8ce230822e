// Finds the source of each piece that a step of a time loop reads, and writes the transfer.
#include "tessera/program/walk/step_operands.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "tessera/program/walk/loop_pieces.h"
#include "tessera/program/walk/needs.h"

namespace tessera {
namespace {

// Readers of the same pieces (query, key and value products) share the fetched pieces if there are
// at most this many ops from one reader to the next. Otherwise the memory for keeping the pieces
// would cost more than a second transfer.
constexpr int kNearOps = 16;

Region step_region(const SteppedOperand& stepped, int64_t step) {
  Region region{stepped.need, stepped.piece};
  region.piece.own().step = step;
  return region;
}

// Returns whether `read` is inside `held`, compared dim by dim. A dim in which `read` is empty
// passes. The other dims are still compared, because on the next rank the step may read something.
bool lies_in(const Box& read, const Box& held) {
  for (size_t d = 0; d < read.rank(); ++d) {
    const Interval piece = read.dims[d];
    if (!piece.empty() && intersect(piece, held.dims[d]) != piece) return false;
  }
  return true;
}

}  // namespace

SteppedOperand StepOperands::prepare(const Op& op, size_t operand) {
  const Mesh& mesh = facts_.mesh(facts_.place_of(op));
  SteppedOperand out;
  out.need = need_of(facts_, op, operand);
  out.piece =
      step_piece(op, facts_.op_plan(op), op.annotation.inputs[operand], mesh, facts_.graph(), 0);
  if (out.piece) leave_out_masked(facts_, op, *out.piece);
  Layout target = out.need;
  const TensorId tensor = op.inputs[operand];
  if (out.piece && facts_.tensor(tensor).role != Role::kInput) {
    target = staged_layout(out.need, *out.piece, materialiser_.held_layout(op, tensor), mesh,
                           facts_.shape(tensor));
    const size_t d = out.piece->dim;
    out.axes.assign(
        target.shards[d].begin() + static_cast<std::ptrdiff_t>(out.need.shards[d].size()),
        target.shards[d].end());
  }
  if (out.piece && out.piece->overlaps()) find_at_rest(op, operand, out);
  if (!out.axes.empty()) out.known = fetched_before(op, tensor, out);
  if (out.known != nullptr) {
    out.known->last_reader = op.id;
  } else {
    out.staged = materialiser_.materialise(op, tensor, target);
  }
  return out;
}

// Finds the steps that read only what a rank holds already, on every rank of the mesh. These steps
// need not wait for the halo. Sets stepped.rests and stepped.at_rest.
void StepOperands::find_at_rest(const Op& op, size_t operand, SteppedOperand& stepped) {
  const TensorId tensor = op.inputs[operand];
  const Mesh& mesh = facts_.mesh(facts_.place_of(op));
  const std::vector<int64_t>& shape = facts_.shape(tensor);
  if (facts_.tensor(tensor).role == Role::kInput) return;  // an input is loaded with its halo
  const auto rests = materialiser_.before_need(op, tensor, stepped.need);
  if (!rests || *rests->region.layout != without_windows(stepped.need, mesh, shape)) return;
  stepped.rests = *rests;
  stepped.at_rest.assign(static_cast<size_t>(stepped.piece->steps), true);
  std::vector<int64_t> at(mesh.axes.size(), 0);
  Axes axes;
  for (const Layout::DimWindow& window : stepped.need.windows) {
    const Axes& cut = stepped.need.shards[window.dim];
    axes.insert(axes.end(), cut.begin(), cut.end());
  }
  for (bool more = true; more;) {
    const Box held = region_of(stepped.rests.region.layout, mesh, shape, at);
    for (int64_t step = 0; step < stepped.piece->steps; ++step) {
      const Box read = evaluate(step_region(stepped, step), mesh, shape, at);
      if (!lies_in(read, held)) stepped.at_rest[static_cast<size_t>(step)] = false;
    }
    more = false;
    for (auto axis = axes.rbegin(); axis != axes.rend() && !more; ++axis) {
      int64_t& coordinate = at[axis->index()];
      more = ++coordinate < mesh.axis(*axis).size;
      if (!more) coordinate = 0;
    }
  }
}

std::vector<int64_t> order_of_steps(const std::vector<SteppedOperand>& operands, int64_t steps) {
  std::vector<int64_t> order(static_cast<size_t>(steps));
  std::iota(order.begin(), order.end(), 0);
  std::stable_partition(order.begin(), order.end(), [&](int64_t step) {
    return std::ranges::all_of(operands, [step](const SteppedOperand& operand) {
      return operand.at_rest.empty() || operand.at_rest[static_cast<size_t>(step)];
    });
  });
  return order;
}

FetchedSteps* StepOperands::fetched_before(const Op& op, TensorId tensor,
                                           const SteppedOperand& stepped) {
  std::list<FetchedSteps>& fetched = fetched_[facts_.place_of(op).index()];
  std::erase_if(fetched, [&](const FetchedSteps& steps) {
    return steps.block != facts_.block_of(op) || steps.last_reader.value + kNearOps < op.id.value;
  });
  const auto it = std::find_if(fetched.begin(), fetched.end(), [&](const FetchedSteps& steps) {
    return steps.tensor == tensor && steps.region == Region{stepped.need, stepped.piece} &&
           steps.axes == stepped.axes;
  });
  return it == fetched.end() ? nullptr : &*it;
}

// Fetches the piece of a step. In an aligned loop all ranks of the axis take the same piece from
// the rank that holds it. In a loop that is rotated by the axis, the piece comes from the
// neighbour, who had it in the step before, so that pieces travel around a ring. In a nested loop,
// an inner ring starts from the piece with which the neighbour on the outer axes started its inner
// ring.
void StepOperands::fetch(const Op& op, size_t operand, SteppedOperand& stepped, int64_t step) {
  std::vector<Held>& by_step = stepped.by_step;
  if (stepped.known != nullptr) {
    by_step.push_back(stepped.known->by_step[static_cast<size_t>(step)]);
    return;
  }
  if (!stepped.piece || stepped.axes.empty()) {
    const bool at_rest = !stepped.at_rest.empty() && stepped.at_rest[static_cast<size_t>(step)];
    Held held = at_rest ? stepped.rests : stepped.staged;
    if (stepped.piece) held.region = step_region(stepped, step);
    by_step.push_back(std::move(held));
    return;
  }
  const StepPiece& piece = *stepped.piece;
  const Mesh& mesh = facts_.mesh(facts_.place_of(op));
  const bool at_home = starts_at_home(piece, stepped.axes, mesh);
  const bool nested = piece.order == StepOrder::kNested && at_home;
  if (step == 0 && at_home) {
    by_step.push_back(stepped.staged);
    by_step.back().region = step_region(stepped, 0);
  } else if (nested) {
    const Axes inner = {piece.skew.back().axis};
    by_step.push_back(step % inner_steps(piece, mesh) == 0
                          ? *std::exchange(stepped.early, std::nullopt)
                          : move(op, operand, stepped, by_step.back(), step, inner));
  } else {
    const bool ring = step > 0 && piece.order == StepOrder::kRotated &&
                      piece.skewed_by(stepped.axes.back()) &&
                      mesh.axis(stepped.axes.back()).size == piece.steps;
    by_step.push_back(
        move(op, operand, stepped, ring ? by_step.back() : stepped.staged, step, stepped.axes));
  }
  if (!nested) return;
  const int64_t inner = inner_steps(piece, mesh);
  if (step % inner != 0 || step + inner >= piece.steps) return;
  Axes outer;  // all skewed axes but the innermost one: the piece moves on to the next inner ring
  for (size_t i = 0; i + 1 < piece.skew.size(); ++i) outer.push_back(piece.skew[i].axis);
  stepped.early = move(op, operand, stepped, by_step.back(), step + inner, outer);
}

// Writes the collective over `axes` that moves a step's piece from `source` to the ranks that need
// it. Returns the piece.
Held StepOperands::move(const Op& op, size_t operand, const SteppedOperand& stepped,
                        const Held& source, int64_t step, Axes axes) {
  const Site site = facts_.site(op);
  Held held;
  held.region = step_region(stepped, step);
  held.buffer =
      writer_.new_buffer(site.place, op.inputs[operand], fmt::format("step{}", step), held.region);
  held.block = site.block;
  TextIssue issue;
  issue.handle = writer_.new_handle();
  issue.classify = true;
  issue.axes = std::move(axes);
  issue.transfers.push_back({op.inputs[operand], source.view(), held.view()});
  writer_.emit(site, std::move(issue));
  return held;
}

void StepOperands::share(const Op& op, size_t operand, const SteppedOperand& stepped) {
  if (stepped.axes.empty() || stepped.known != nullptr) return;
  const Site site = facts_.site(op);
  fetched_[site.place.index()].push_back({op.inputs[operand],
                                          site.block,
                                          {stepped.need, stepped.piece},
                                          stepped.axes,
                                          stepped.by_step,
                                          op.id});
}

}  // namespace tessera
