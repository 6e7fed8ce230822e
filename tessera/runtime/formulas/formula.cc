#include "tessera/runtime/formulas/formula.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>

#include "tessera/base/check.h"
#include "tessera/runtime/formulas/call.h"
#include "tessera/runtime/formulas/merge.h"
#include "tessera/runtime/kernels/family.h"
#include "tessera/runtime/kernels/row_loops/table_rows.h"
#include "tessera/runtime/kernels/tensor.h"

namespace tessera::kernels {
namespace {

const std::map<std::string_view, Formula>& registry() {
  static const std::map<std::string_view, Formula> all = [] {
    std::map<std::string_view, Formula> kinds;
    for (const auto family :
         {elementwise_formulas(), row_formulas(), product_formulas(), lookup_formulas(),
          update_formulas(), mask_formulas(), mixture_formulas(), random_formulas(),
          row_update_formulas(), sparse_formulas(), batch_norm_formulas(), convolution_formulas(),
          grid_formulas(), moving_formulas(), picking_formulas(), pool_formulas(),
          recurrence_formulas()}) {
      for (const Formula& formula : family) kinds.emplace(formula.kind, formula);
    }
    return kinds;
  }();
  return all;
}

// Returns the tensor in the dtype in which formulas compute.
at::Tensor widened(const at::Tensor& x) {
  const bool narrow = x.scalar_type() == at::kBFloat16 || x.scalar_type() == at::kHalf;
  return narrow ? x.to(at::kFloat) : x;
}

// Merges a value into what an output has: by Chan's update for moments (count, mean, M2), which are
// the last dim.
at::Tensor merged_moments(const at::Tensor& a, const at::Tensor& b) {
  const auto part = [](const at::Tensor& x, int64_t i) { return x.select(-1, i); };
  const at::Tensor count = part(a, 0) + part(b, 0), delta = part(b, 1) - part(a, 1);
  const at::Tensor share = at::where(count == 0, at::zeros_like(count), part(b, 0) / count);
  const at::Tensor merged =
      at::stack({count, part(a, 1) + delta * share,
                 part(a, 2) + part(b, 2) + delta * delta * part(a, 0) * share},
                -1);
  // A part of nothing leaves the other as it is.
  const auto has_none = [&](const at::Tensor& x) { return (part(x, 0) == 0).unsqueeze(-1); };
  return at::where(has_none(b), a, at::where(has_none(a), b, merged));
}

// Returns what two parts of attention's result make together. `lse` has the log-sum-exp of the scores
// of each part, before[0] and made[0] its results.
at::Tensor merged_results(const at::Tensor& before, const at::Tensor& lse_before,
                          const at::Tensor& made, const at::Tensor& lse_made) {
  const at::Tensor both = at::logaddexp(lse_before, lse_made);
  const auto part = [&](const at::Tensor& value, const at::Tensor& lse) {
    const at::Tensor share = at::where(at::isinf(both), at::zeros_like(both), at::exp(lse - both));
    return value * share.unsqueeze(-1).to(value.scalar_type());
  };
  return part(before, lse_before) + part(made, lse_made);
}

// Prepares what a call without elements writes: the combiner's identity, unless it adds.
Kernel prepare_identities(const KernelCall& call) {
  return [call] {
    for (size_t i = 0; i < call.outputs.size(); ++i) {
      if (call.add[i] || call.outputs[i].empty()) continue;
      tensor_of(call.outputs[i]).fill_(identity(call.op->annotation.outputs[i].combiner));
    }
  };
}

}  // namespace

void merge_into(const at::Tensor& to, const at::Tensor& part, Combiner combiner) {
  const at::Tensor made = part.expand(to.sizes()), before = widened(to);
  switch (combiner) {
    case Combiner::kSum: to.copy_(before + made); return;
    case Combiner::kMax: to.copy_(at::maximum(before, made.to(before.scalar_type()))); return;
    case Combiner::kLogSumExp: to.copy_(at::logaddexp(before, made)); return;
    case Combiner::kMoments: to.copy_(merged_moments(before, made)); return;
    case Combiner::kWeighted: break;
  }
  TESSERA_CHECK(false, "weighted parts are merged by the kind's kernel");
}

Call::Call(const KernelCall& call) : call_(call) {}

at::Tensor Call::in(size_t i) const { return widened(stored(i)); }
at::Tensor Call::stored(size_t i) const { return tensor_of(call_.inputs[i]); }
at::Tensor Call::output(size_t i) const { return tensor_of(call_.outputs[i]); }
at::Tensor Call::updated(size_t i) const {
  at::Tensor to = tensor_of(call_.outputs[i]);
  if (call_.outputs[i].data != call_.inputs[i].data) to.copy_(stored(i));
  return to;
}

at::Tensor Call::along(size_t i, const std::vector<int>& order) const {
  Array array = input_along(call_, i, order);
  for (size_t d = 0; d < order.size(); ++d) {
    if (array.strides[d] == 0) array.shape[d] = 1;
  }
  return widened(tensor_of(array));
}

std::vector<int> Call::dims_of_output(size_t output) const {
  return op_dims(op().annotation.outputs[output]);
}

at::Tensor Call::aligned(size_t i, size_t output) const { return along(i, dims_of_output(output)); }

int64_t Call::dim(size_t i, std::string_view name) const {
  const std::vector<int> dims = op_dims(op().annotation.inputs[i]);
  const auto at = std::find(dims.begin(), dims.end(), op().annotation.find(name));
  TESSERA_CHECK(at != dims.end(), "{}: no dim {}", op().path, name);
  return at - dims.begin();
}

at::Tensor Call::summed(const at::Tensor& value, const std::vector<int>& order,
                        size_t output) const {
  const std::vector<int> kept = dims_of_output(output);
  std::vector<int64_t> gone, left;
  for (size_t d = 0; d < order.size(); ++d) {
    const bool stays = std::find(kept.begin(), kept.end(), order[d]) != kept.end();
    if (!stays) gone.push_back(static_cast<int64_t>(d));
  }
  const at::Tensor sum = gone.empty() ? value : value.sum(gone);
  std::vector<int> rest;
  for (const int dim : order) {
    if (std::find(kept.begin(), kept.end(), dim) != kept.end()) rest.push_back(dim);
  }
  for (const int dim : kept) {
    const auto at = std::find(rest.begin(), rest.end(), dim);
    TESSERA_CHECK(at != rest.end(), "{}: the value lacks a dim of output {}", op().path, output);
    left.push_back(at - rest.begin());
  }
  return sum.permute(left);
}

at::Tensor Call::regrouped(const at::Tensor& value, size_t output) const {
  return value.reshape(call_.outputs[output].shape);
}

Interval Call::rows_of(int dim) const { return rows_named(call_, dim); }
Interval Call::interval(std::string_view dim) const {
  return call_.box.dims[static_cast<size_t>(op().annotation.find(dim))];
}
int64_t Call::whole(std::string_view dim) const {
  return op().annotation.dims[static_cast<size_t>(op().annotation.find(dim))].size;
}

at::Tensor numbers(const std::vector<int64_t>& list, const at::Tensor& like) {
  const auto options = at::TensorOptions(at::kLong).device(like.device());
  std::vector<at::Tensor> runs;
  for (size_t i = 0; i < list.size();) {
    const int64_t step = i + 1 < list.size() ? list[i + 1] - list[i] : 1;
    size_t end = i + 1;
    while (step != 0 && end < list.size() && list[end] - list[end - 1] == step) ++end;
    const auto count = static_cast<int64_t>(end - i);
    runs.push_back(step == 0 ? at::full({1}, list[i], options)
                             : at::arange(list[i], list[i] + count * step, step, options));
    i = end;
  }
  return runs.size() == 1 ? runs[0] : at::cat(runs);
}

bool has_formula(const Op& op, bool cached) {
  const auto found = registry().find(op.kind);
  if (found == registry().end()) return false;
  const auto agrees = [&](bool (*covers)(const Op&)) { return covers == nullptr || covers(op); };
  return agrees(found->second.covers) && (!cached || agrees(found->second.covers_cached));
}

Kernel prepare_chosen(const KernelCall& call) {
  const auto empty = [](const Array& array) { return array.empty(); };
  const auto away = [](const Array& array) { return !array.place.is_processor(); };
  // Without elements to compute there are only identities to write, which formulas know nothing of.
  const bool nothing = call.box.empty() || std::ranges::all_of(call.outputs, empty);
  const bool accelerated = std::ranges::any_of(call.outputs, away);
  const bool covered = has_formula(*call.op, call.row_at != nullptr);
  if (accelerated && nothing) return prepare_identities(call);
  TESSERA_CHECK(!accelerated || covered, "no formula for kind {}", call.op->kind);
  const bool chosen = call.context->formulas && !nothing && covered;
  if (!accelerated && !chosen) return prepare_kernel(call);
  const auto found = registry().find(call.op->kind);
  return [call, value = found->second.value] {
    const Values made = value(Call(call));
    TESSERA_CHECK(made.size() == call.outputs.size(), "{}: {} values for {} outputs", call.op->path,
                  made.size(), call.outputs.size());
    for (size_t i = 0; i < made.size(); ++i) {
      if (call.outputs[i].empty()) continue;
      if (!made[i].defined()) {  // the formula has written it
        TESSERA_CHECK(!call.add[i], "{}: an update is never added", call.op->path);
        continue;
      }
      if (call.add[i] && call.op->annotation.outputs[i].combiner == Combiner::kWeighted) {
        const at::Tensor to = tensor_of(call.outputs[i]);  // the next output has the log-sum-exp
        to.copy_(merged_results(widened(to), tensor_of(call.outputs[i + 1]), made[i], made[i + 1]));
        continue;
      }
      const at::Tensor to = tensor_of(call.outputs[i]);
      if (call.add[i]) {
        merge_into(to, made[i], call.op->annotation.outputs[i].combiner);
      } else {
        to.copy_(made[i].expand(to.sizes()));
      }
    }
  };
}

}  // namespace tessera::kernels
