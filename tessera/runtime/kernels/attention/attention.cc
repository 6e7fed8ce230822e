// Fused attention. The plain form (without bias, segments, window, dropout and cap of the scores,
// and with values as wide as keys; causal or not) is
// computed by libtorch's flash kernels for the processor. They work on strided views, so q, k and v
// are not copied; there is one call for each query group. A box may hold any interval of queries
// and any interval of keys. It is cut into rectangles, each of which is completely below the causal
// diagonal or a square on it. The results of the rectangles are merged by log-sum-exp, which is
// exact. Keys that no query of the box sees are not read; their gradients are zero.
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/fill.h>
#include <ATen/ops/zero.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "tessera/runtime/kernels/attention/attention_form.h"
#include "tessera/runtime/kernels/nest.h"
#include "tessera/runtime/kernels/rectangles.h"
#include "tessera/runtime/kernels/row_loops/rows.h"
#include "tessera/runtime/kernels/tensor.h"

namespace tessera::kernels {
namespace {

std::vector<Rectangle> rectangles_of(const KernelCall& call) {
  const size_t first = AttentionOperands(*call.op).q;
  const auto q = static_cast<size_t>(op_dims(call.op->annotation.inputs[first])[1]);
  const Array& k = call.inputs[first + 1];
  const auto order = parse_order(call.op->text("order"));
  TESSERA_CHECK(order.has_value(), "{}: order {}", call.op->path, call.op->text("order"));
  const auto kv = static_cast<size_t>(op_dims(call.op->annotation.inputs[first + 1])[1]);
  // If there are more keys than queries, the queries have the last positions.
  const std::vector<OpDim>& dims = call.op->annotation.dims;
  Interval queries = call.box.dims[q];
  queries.begin += dims[kv].size - dims[q].size;
  // k may have fewer keys than the box, because it may end at the last query.
  return rectangles(queries, {call.box.dims[kv].begin, k.shape[1]}, call.op->integer("causal") != 0,
                    *order, dims[kv].size);
}

// Returns whether the call is computed by the blocked kernels (attention_blocked.cc) and not by
// libtorch's. Every form except the plain one is, because libtorch's kernels know only the plain
// form. The plain form is, if the blocked kernels are faster and the tokens are in the order of
// their positions.
bool blocked(const KernelCall& call) {
  const Op& op = *call.op;
  const AttentionOperands operands(op);
  const Array &q = call.inputs[operands.q], &v = call.inputs[operands.q + 2];
  const bool plain = operands.bias < 0 && operands.query_segments < 0 && operands.of_lse < 0 &&
                     op.integer("window") == 0 && op.number("p") == 0 &&
                     op.number("softcap") == 0 && q.shape.back() == v.shape.back();
  return !plain || (blocked_attention_is_faster(call.inputs[0].dtype) && op.text("order").empty());
}

std::optional<double> stated_scale(const Op& op) {
  const double scale = op.number("scale");
  return scale == 0 ? std::nullopt : std::optional<double>(scale);
}

int64_t offset_bytes(const Array& array, size_t dim, int64_t index) {
  return index * array.strides[dim] * dtype_bytes(array.dtype);
}

// Returns [batch, seq, heads, group, d] or [batch, seq, heads, d] as [batch, heads, interval of
// seq, d], for one group.
at::Tensor heads_view(const Array& x, Interval seq, int64_t group) {
  std::byte* data = x.data + offset_bytes(x, 1, seq.begin);
  const bool grouped = x.shape.size() == 5;
  if (grouped) data += offset_bytes(x, 3, group);
  const size_t last = grouped ? 4 : 3;
  return tensor_of(data, x.dtype, {x.shape[0], x.shape[2], seq.size, x.shape[last]},
                   {x.strides[0], x.strides[2], x.strides[1], x.strides[last]});
}

// Returns [batch, seq, heads, group] as [batch, heads, interval of seq], for one group.
at::Tensor statistics_view(const Array& x, Interval seq, int64_t group) {
  return tensor_of(x.data + offset_bytes(x, 1, seq.begin) + offset_bytes(x, 3, group), x.dtype,
                   {x.shape[0], x.shape[2], seq.size}, {x.strides[0], x.strides[2], x.strides[1]});
}

Array array_of(const at::Tensor& tensor, DType dtype) {
  return {static_cast<std::byte*>(tensor.data_ptr()), dtype, tensor.sizes().vec(),
          tensor.strides().vec()};
}

struct ForwardCall {
  at::Tensor q, k, v, o, lse;
  Array o_array, lse_array;
  bool causal = false;
};

// Merges the results (o, lse) for further keys into the results so far: o = sum of o_i exp(lse_i
// - lse).
template <class A>
void merge(const ForwardCall& part, const at::Tensor& o, const at::Tensor& lse) {
  const Array other_o = array_of(o, part.o_array.dtype);
  const Array other_lse = array_of(lse, sizeof(A) == 8 ? DType::kFloat64 : DType::kFloat32);
  const Nest<4> nest({&part.o_array, &part.lse_array, &other_o, &other_lse}, 3);
  const Row<A> total(part.o_array), term(other_o);
  const DType own = part.lse_array.dtype, others = other_lse.dtype;
  nest.each([&](const std::array<std::byte*, 4>& at) {
    const A l1 = load_element<A>(at[1], own), l2 = load_element<A>(at[3], others),
            top = std::max(l1, l2);
    if (std::isinf(l2)) return;
    const A sum = top + std::log(std::exp(l1 - top) + std::exp(l2 - top));
    const A w1 = std::exp(l1 - sum), w2 = std::exp(l2 - sum);
    const A *a = total.read(at[0]), *b = term.read(at[2]);
    A* out = total.write(at[0]);
    for (int64_t i = 0; i < total.size(); ++i) out[i] = a[i] * w1 + b[i] * w2;
    total.commit(at[0]);
    store_element(at[1], own, sum);
  });
}

Kernel attention(const KernelCall& call) {
  if (blocked(call)) return blocked_attention(call);
  const Array &q = call.inputs[0], &k = call.inputs[1], &v = call.inputs[2], &o = call.outputs[0],
              &lse = call.outputs[1];
  const std::vector<Rectangle> parts = rectangles_of(call);
  const std::optional<double> scale = stated_scale(*call.op);
  const bool add = call.add[0];  // whether to merge into the results for other keys
  const bool whole = !add && parts.size() == 1 && parts[0].queries.size == q.shape[1];
  std::vector<ForwardCall> calls;
  for (int64_t g = 0; g < q.shape[3]; ++g) {
    for (const Rectangle& part : parts) {
      ForwardCall one{heads_view(q, part.queries, g),
                      heads_view(k, part.keys, g),
                      heads_view(v, part.keys, g),
                      heads_view(o, part.queries, g),
                      statistics_view(lse, part.queries, g),
                      {},
                      {},
                      part.causal};
      one.o_array = array_of(one.o, o.dtype);
      one.lse_array = array_of(one.lse, lse.dtype);
      calls.push_back(std::move(one));
    }
  }
  const bool wide = q.dtype == DType::kFloat64;
  return [calls = std::move(calls), scale, add, whole, wide, o_all = tensor_of(o),
          lse_all = tensor_of(lse)]() mutable {
    if (!whole && !add) {
      o_all.zero_();
      lse_all.fill_(-std::numeric_limits<double>::infinity());
    }
    for (const ForwardCall& one : calls) {
      const auto [out, statistics] = at::_scaled_dot_product_flash_attention_for_cpu(
          one.q, one.k, one.v, 0.0, one.causal, std::nullopt, scale);
      if (whole) {
        one.o.copy_(out);
        one.lse.copy_(statistics);
      } else if (wide) {
        merge<double>(one, out, statistics);
      } else {
        merge<float>(one, out, statistics);
      }
    }
  };
}

struct BackwardCall {
  at::Tensor d_o, q, k, v, o, lse, dq, dk, dv;
  bool causal = false, set_dq = false, set_dk = false, set_dv = false;
};

void put_result(const at::Tensor& to, const at::Tensor& value, bool set) {
  if (set) {
    to.copy_(value);
  } else {
    to.add_(value);
  }
}

// Prepares the kernel with inputs (do, q, k, v, o, lse) and outputs (dq, dk, dv). Each
// rectangle recomputes its weights from the lse over all keys, so the gradients of the
// rectangles can be added.
Kernel attention_grad(const KernelCall& call) {
  if (blocked(call)) return blocked_attention_grad(call);
  const Array &d_o = call.inputs[0], &q = call.inputs[1], &k = call.inputs[2], &v = call.inputs[3],
              &o = call.inputs[4], &lse = call.inputs[5];
  const Array &dq = call.outputs[0], &dk = call.outputs[1], &dv = call.outputs[2];
  const std::vector<Rectangle> parts = rectangles_of(call);
  const std::optional<double> scale = stated_scale(*call.op);
  // If one rectangle covers all queries (all keys), its gradients of the queries (keys) are written
  // instead of added.
  const bool covers_queries =
      !call.add[0] && parts.size() == 1 && parts[0].queries.size == q.shape[1];
  const auto covers_keys = [&](size_t output, const Array& keys) {
    return !call.add[output] && parts.size() == 1 && parts[0].keys.size == keys.shape[1];
  };
  const bool covers_dk = covers_keys(1, dk), covers_dv = covers_keys(2, dv);
  std::vector<BackwardCall> calls;
  for (int64_t g = 0; g < q.shape[3]; ++g) {
    for (const Rectangle& part : parts) {
      calls.push_back({heads_view(d_o, part.queries, g), heads_view(q, part.queries, g),
                       heads_view(k, part.keys, g), heads_view(v, part.keys, g),
                       heads_view(o, part.queries, g), statistics_view(lse, part.queries, g),
                       heads_view(dq, part.queries, g), heads_view(dk, part.keys, g),
                       heads_view(dv, part.keys, g), part.causal, covers_queries,
                       covers_dk && g == 0, covers_dv && g == 0});
    }
  }
  std::vector<at::Tensor> cleared;
  if (!covers_queries && !call.add[0]) cleared.push_back(tensor_of(dq));
  if (!covers_dk && !call.add[1]) cleared.push_back(tensor_of(dk));
  if (!covers_dv && !call.add[2]) cleared.push_back(tensor_of(dv));
  return [calls = std::move(calls), scale, cleared = std::move(cleared)]() mutable {
    for (at::Tensor& gradient : cleared) gradient.zero_();
    for (const BackwardCall& one : calls) {
      const auto [gq, gk, gv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
          one.d_o, one.q, one.k, one.v, one.o, one.lse, 0.0, one.causal, std::nullopt, scale);
      put_result(one.dq, gq, one.set_dq);
      put_result(one.dk, gk, one.set_dk);
      put_result(one.dv, gv, one.set_dv);
    }
  };
}

constexpr KernelInfo kAttentionKernels[] = {
    {"attention", attention, 0b11},
    {"attention_grad", attention_grad, 0b111},
    {"attention_bias_grad", blocked_attention_grad, 0b1111},
};

}  // namespace

std::span<const KernelInfo> attention_kernels() { return kAttentionKernels; }

}  // namespace tessera::kernels
