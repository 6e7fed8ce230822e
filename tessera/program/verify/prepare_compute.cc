#include <algorithm>

#include "tessera/graph/kinds.h"
#include "tessera/graph/rows.h"
#include "tessera/program/instructions.h"
#include "tessera/program/verify/points.h"
#include "tessera/program/verify/prepare.h"
#include "tessera/program/verify/rows.h"

namespace tessera::verifying {
namespace {

// Returns the box as it moves with another one.
Moving along(Box box, const Moving& with) {
  return {std::move(box), with.dim, with.step, with.larger};
}

// Returns a region that moves with the micro-batch, from its boxes for micro-batches 0 and 1.
// `box`: the instruction's box from which the region follows.
Moving moving(Box at_zero, const Box& at_one, const Moving& box) {
  Moving out{std::move(at_zero), -1, 0, box.larger};
  for (size_t i = 0; i < out.box.rank(); ++i) {
    const int64_t step = at_one.dims[i].begin - out.box.dims[i].begin;
    if (step == 0) continue;
    out.dim = static_cast<int>(i);
    out.step = step;
  }
  return out;
}

// Checks that all operands of a kernel are in the same tier, which must be device or host memory.
bool check_tiers(Preparing& p, const Compute& compute, const Op& op) {
  std::vector<std::pair<const View*, TensorId>> views;
  for (size_t o = 0; o < compute.outputs.size(); ++o) {
    views.emplace_back(&compute.outputs[o].view, op.outputs[o]);
  }
  for (size_t i = 0; i < compute.inputs.size(); ++i) {
    views.emplace_back(&compute.inputs[i], op.inputs[i]);
  }
  for (const auto& [view, tensor] : views) {
    const Tier tier = p.tier_of(*view), first = p.tier_of(*views.front().first);
    if (tier == first && tier != Tier::kDisk) continue;
    return p.reject(
        "tier", tensor, "expected %{} in the {} tier as the op's other operands, found {}",
        view->buffer.value, tier_name(first == Tier::kDisk ? Tier::kHost : first), tier_name(tier));
  }
  return true;
}

// Checks the box of a compute: it must have frozen dims whole, unless it is empty, as it is on a
// rank at another coordinate than the op's pin. Sets out.box to the points that the box stands for
// (counted_by_queries).
bool check_box(Preparing& p, const Compute& compute, const Op& op, Prepared& out) {
  const Annotation& annotation = op.annotation;
  std::vector<int64_t> sizes;
  for (const OpDim& dim : annotation.dims) sizes.push_back(dim.size);
  out.box = {compute.box};
  if (compute.box.rank() != sizes.size()) {
    return p.reject("instruction", {}, "expected a box of {} dims, found {}", sizes.size(),
                    compute.box.to_string());
  }
  if (p.uses_micro_batch()) {
    p.move_along(micro_batch_dim_of(p.program, annotation), out.box);
  }
  for (size_t i = 0; i < sizes.size(); ++i) {
    const OpDim& dim = annotation.dims[i];
    Interval& own = out.box.box.dims[i];
    if (dim.mark == Mark::kFrozen && own != Interval{0, dim.size} && !compute.box.empty()) {
      return p.reject("instruction", {}, "frozen dim {} is split: expected [0:{}], found [{}:{}]",
                      dim.name, dim.size, own.begin, own.end());
    }
  }
  if (!p.check_inside(out.box, sizes, op.outputs.empty() ? TensorId() : op.outputs[0]))
    return false;
  out.box.box = counted_by_queries(op, std::move(out.box.box));
  return true;
}

bool check_result(Preparing& p, const Compute& compute, const Op& op, size_t index) {
  const Output& output = compute.outputs[index];
  if (output.terms == 1) {
    return (output.tensor == op.outputs[index] && output.term == 0) ||
           p.reject("instruction", op.outputs[index], "expected this output, found {}",
                    p.known(output.tensor) ? p.graph.tensor(output.tensor).name : "none");
  }
  const bool made = p.known(output.tensor) && p.known(p.graph.tensor(output.tensor).producer);
  const Op* sum = made ? &p.graph.op(p.graph.tensor(output.tensor).producer) : nullptr;
  if (sum == nullptr || !is_sum_of_terms(*sum) ||
      sum->inputs.size() != static_cast<size_t>(std::max(0, output.terms)) || output.term < 0 ||
      output.term >= output.terms ||
      sum->inputs[static_cast<size_t>(output.term)] != op.outputs[index]) {
    return p.reject("instruction", op.outputs[index], "is not term {} of {} of {}", output.term,
                    output.terms,
                    p.known(output.tensor) ? p.graph.tensor(output.tensor).name : "none");
  }
  return true;
}

bool prepare_outputs(Preparing& p, const Compute& compute, Prepared& out) {
  const Op& op = *out.op;
  const Annotation& annotation = op.annotation;
  const Box next = along(compute.box, out.box).at(1);
  for (size_t i = 0; i < op.outputs.size(); ++i) {
    const OperandDims& dims = annotation.outputs[i];
    PreparedOutput output;
    output.region =
        moving(project(annotation, dims, compute.box), project(annotation, dims, next), out.box);
    output.box = along(counted(op, dims, compute.box), out.box);
    for (KeyStretch& stretch : stretches_of(op, dims, compute.box)) {
      Moving region = output.region;
      region.box.dims[stretch.tensor_dim] = stretch.keys;
      output.stretches.push_back({std::move(region), along(std::move(stretch.box), out.box)});
    }
    for (size_t d = 0; d < annotation.dims.size(); ++d) {
      if (!dims.contains(static_cast<int>(d))) output.reduced.push_back(static_cast<int>(d));
    }
    if (!p.check_view(compute.outputs[i].view, op.outputs[i], output.region.box)) return false;
    if (!check_result(p, compute, op, i)) return false;
    if (dims.combiner == Combiner::kWeighted &&
        compute.outputs[i].write != compute.outputs[i + 1].write) {
      return p.reject("instruction", op.outputs[i],
                      "is set where its weight is added, or the reverse");
    }
    out.outputs.push_back(std::move(output));
  }
  return true;
}

// Checks that an output shares memory with an input only if the op may overwrite the input element
// by element. This may be output 0 with input 0 of an in-place kind, or the new value of a
// parameter or state with the old value.
bool check_overwrites(Preparing& p, const Compute& compute, const Op& op, Prepared& out) {
  for (size_t o = 0; o < compute.outputs.size(); ++o) {
    const View& to = compute.outputs[o].view;
    for (size_t i = 0; i < compute.inputs.size(); ++i) {
      const View& from = compute.inputs[i];
      const bool updates = p.graph.tensor(op.outputs[o]).update_of == op.inputs[i];
      const bool may = updates || (out.kind->in_place && o == 0 && i == 0);
      if (may && compute.outputs[o].write == Write::kSet && out.outputs[o].alias < 0) {
        out.outputs[o].alias = static_cast<int>(i);
      }
      if (from.buffer != to.buffer || !overlaps(from.box, to.box)) continue;
      if (!may || !(from == to) || compute.outputs[o].write != Write::kSet) {
        return p.reject("lifetime", op.outputs[o], "output {} overwrites input {} in %{}", o, i,
                        to.buffer.value);
      }
    }
    for (size_t other = 0; other < o; ++other) {
      const View& before = compute.outputs[other].view;
      if (before.buffer == to.buffer && overlaps(before.box, to.box)) {
        return p.reject("lifetime", op.outputs[o], "outputs {} and {} overlap in %{}", other, o,
                        to.buffer.value);
      }
    }
  }
  return true;
}

}  // namespace

bool prepare_compute(Preparing& p, const Compute& compute, Prepared& out) {
  if (!p.known(compute.op)) return p.reject("instruction", {}, "unknown op {}", compute.op.value);
  const Op& op = p.graph.op(compute.op);
  if (compute.kind != op.kind) {
    return p.reject("instruction", {}, "expected kind {}, found {}", op.kind, compute.kind);
  }
  if (compute.attributes != op.attributes) {
    return p.reject("instruction", {}, "attributes differ from those of op {}", op.path);
  }
  if (compute.inputs.size() != op.inputs.size() || compute.outputs.size() != op.outputs.size()) {
    return p.reject("instruction", {}, "expected {} inputs and {} outputs, found {} and {}",
                    op.inputs.size(), op.outputs.size(), compute.inputs.size(),
                    compute.outputs.size());
  }
  out.op = &op;
  out.kind = op.info;
  if (out.kind == nullptr) return p.reject("instruction", {}, "unknown kind {}", op.kind);
  if (!check_box(p, compute, op, out)) return false;
  const Annotation& annotation = op.annotation;
  const Box next = along(compute.box, out.box).at(1);
  out.linear = out.kind->linear;
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    const OperandDims& dims = annotation.inputs[i];
    out.regions.push_back(
        moving(project(annotation, dims, compute.box), project(annotation, dims, next), out.box));
    if (!p.check_view(compute.inputs[i], op.inputs[i], out.regions.back().box)) return false;
    out.linear = out.linear && dims.dims == annotation.outputs[0].dims && dims.windowed.empty();
  }
  return prepare_outputs(p, compute, out) && check_tiers(p, compute, op) &&
         check_overwrites(p, compute, op, out) &&
         p.check(find_row_use(p.program, compute, op, out.rows));
}

}  // namespace tessera::verifying
