// Computes how much work an instruction does, from the entry of its kind in the op table
// (graph/kinds.h) and the sizes of its box and views.
#include <algorithm>
#include <array>
#include <cmath>

#include "tessera/base/check.h"
#include "tessera/cost/op_cost.h"
#include "tessera/graph/kinds.h"
#include "tessera/graph/order.h"
#include "tessera/graph/windows.h"

namespace tessera {
namespace {

double extent(const Compute& compute, int op_dim) {
  return static_cast<double>(compute.box.dims[static_cast<size_t>(op_dim)].size);
}

// Returns the extent of the box along the dim of that name; 1 if the op has no such dim.
double extent(const Op& op, const Compute& compute, std::string_view name) {
  const int dim = op.annotation.find(name);
  return dim < 0 ? 1 : extent(compute, dim);
}

// ---- bytes
// ---------------------------------------------------------------------------------------
struct ViewSize {
  double elements = 0, bytes = 0;
};
ViewSize size_of(const Program& program, const View& view) {
  const auto elements = static_cast<double>(view.box.volume());
  return {elements, elements * static_cast<double>(dtype_bytes(program.buffer(view.buffer).dtype))};
}

// Returns the bytes of the table rows that the ids in input 0 name. A row has the width of the last
// dim of `like`, and its dtype.
double bytes_of_rows(const Program& program, const Compute& compute, const View& like) {
  const double width = like.box.rank() == 0 ? 1 : static_cast<double>(like.box.dims.back().size);
  return size_of(program, compute.inputs[0]).elements * width *
         static_cast<double>(dtype_bytes(program.buffer(like.buffer).dtype));
}

// Counts the bytes of an op that touches rows of a table and of its states by ids. If the box has a
// share of the rows of the table, that share of the ids is assumed to name rows in the box. Each
// such row is read once, and is also written if the op updates that table.
void count_rows(const Program& program, const Op& op, const Compute& compute, OpWork& work) {
  double ids = 0;
  size_t tables = 0;  // number of inputs before the first ids
  for (size_t i = 0; i < compute.inputs.size(); ++i) {
    const View& view = compute.inputs[i];
    const ViewSize size = size_of(program, view);
    if (!is_floating(program.buffer(view.buffer).dtype)) {
      if (ids == 0) tables = i;
      ids += size.elements;
    }
    if (ids > 0) work.bytes_read += size.bytes;
  }
  const auto rows = static_cast<size_t>(op.annotation.inputs[0].dims[0][0]);
  const double there = static_cast<double>(compute.box.dims[rows].size);
  const double touched =
      std::min(there, ids * there / static_cast<double>(op.annotation.dims[rows].size));
  for (size_t i = 0; i < tables; ++i) {
    const ViewSize size = size_of(program, compute.inputs[i]);
    const double share = there > 0 ? touched / there : 0;
    work.elements = std::max(work.elements, share * size.elements);
    work.bytes_read += share * size.bytes;
    if (i < compute.outputs.size() && touches_rows(op, i))
      work.bytes_written += share * size_of(program, compute.outputs[i].view).bytes;
  }
}

void count_bytes(const Program& program, const Op& op, const Compute& compute, OpWork& work) {
  const ByteRule rule = info_of(op).bytes;
  if (rule == ByteRule::kRows) return count_rows(program, op, compute, work);
  for (const Output& output : compute.outputs) {
    const ViewSize size = size_of(program, output.view);
    work.elements = std::max(work.elements, size.elements);
    const bool adds = output.write == Write::kAdd ||
                      (output.write == Write::kAddExceptFirst && program.micro_batches > 1);
    // Only the rows are touched, which is counted below.
    if (rule == ByteRule::kTableGrad && adds) continue;
    work.bytes_written += size.bytes;
    if (adds) work.bytes_read += size.bytes;
  }
  for (size_t i = 0; i < compute.inputs.size(); ++i) {
    const View& view = compute.inputs[i];
    if (i > 0 && rule == ByteRule::kShape && i == 1) continue;
    if (i == 1 && view == compute.inputs[0]) continue;  // the same operand twice, as in a * a
    const ViewSize size = size_of(program, view);
    if (i == 1 && rule == ByteRule::kTable) {
      work.bytes_read += bytes_of_rows(program, compute, view);
      continue;
    }
    work.elements = std::max(work.elements, size.elements);
    work.bytes_read += rule == ByteRule::kPart    ? std::min(size.bytes, work.bytes_written)
                       : rule == ByteRule::kTwice ? 2 * size.bytes
                                                  : size.bytes;
    if (i == 1 && rule == ByteRule::kTableGrad) {  // each row is read, added to and written
      const double rows = bytes_of_rows(program, compute, view);
      work.bytes_read += rows;
      work.bytes_written += rows;
    }
  }
}

DType arithmetic_of(const Program& program, const Compute& compute) {
  for (const View& view : compute.inputs) {
    const DType dtype = program.buffer(view.buffer).dtype;
    if (is_floating(dtype)) return dtype;
  }
  for (const Output& output : compute.outputs) {
    const DType dtype = program.buffer(output.view.buffer).dtype;
    if (is_floating(dtype)) return dtype;
  }
  return DType::kFloat32;
}

// ---- matrix products
// -----------------------------------------------------------------------------
int last_dim(const OperandDims& operand) {
  return operand.dims.empty() ? -1 : operand.dims.back().front();
}

// Computes the sizes batch, m, n, k and the layout of a matrix product of a and b. Dims that a, b
// and the output have belong to the batch; dims of a and the output to m; dims of b and the output
// to n; dims that are summed over to k. For a convolution these are the sizes of its implicit
// product: the elements of the kernel belong to k, the positions on the map to m.
void measure_matmul(const Op& op, const Compute& compute, OpWork& work) {
  const Annotation& annotation = op.annotation;
  const OperandDims &a = annotation.inputs[0], &b = annotation.inputs[1];
  work.m = work.n = work.k = 1;
  const int last_a = last_dim(a), last_b = last_dim(b);
  bool a_ends_in_k = true, b_ends_in_n = true;
  for (size_t d = 0; d < annotation.dims.size(); ++d) {
    const int dim = static_cast<int>(d);
    const bool in_a = a.contains(dim), in_b = b.contains(dim);
    const bool kept = !annotation.reduces(dim, 0);
    double& size = !kept ? work.k : in_a && in_b ? work.batch : in_a ? work.m : work.n;
    size *= static_cast<double>(windows_of(annotation, dim, compute.box.dims[d]));
    if (kept && dim == last_a) a_ends_in_k = false;
    if (!kept && dim == last_b) b_ends_in_n = false;
    if (in_a && in_b && kept && annotation.dims[d].name == "experts") work.grouped = true;
  }
  constexpr std::array<std::string_view, 4> kLayouts = {"tt", "tn", "nt", "nn"};
  work.layout = kLayouts[(a_ends_in_k ? 2 : 0) + (b_ends_in_n ? 1 : 0)];
}

// Returns whether the kernels are 3 x 3 with stride 1, so that Winograd's transform
// saves multiplications.
bool takes_winograd(const Annotation& annotation) {
  int windows = 0;
  for (const OpDim& dim : annotation.dims) {
    if (!dim.window) continue;
    if (dim.window->kernel != 3 || dim.window->stride != 1) return false;
    ++windows;
  }
  return windows == 2;
}

// ---- attention
// -----------------------------------------------------------------------------------
void measure_attention(const Op& op, const Compute& compute, OpWork& work) {
  const std::optional<QueryKey> dims = query_key_of(op);
  TESSERA_CHECK(dims.has_value(), "kind '{}' of attention has no queries and keys", op.kind);
  work.batch = extent(op, compute, "batch");
  work.queries = extent(compute, dims->query);
  work.keys = extent(compute, dims->key);
  work.key_heads = extent(op, compute, "heads");
  work.heads = work.key_heads * extent(op, compute, "group");
  work.head_dim = extent(op, compute, "head_dim");
  const double points = work.queries * work.keys;
  work.visible = points > 0 ? visible_points(op, compute.box) / points : 0;
  // The forward pass has two products and the backward pass five (graph/kinds/attention.cc). A
  // product does 2 flops for each score and element of the head.
  const double products = work.gradient ? 5 : 2;
  work.flops = products * 2 * work.batch * work.heads * work.queries * work.keys * work.head_dim *
               work.visible;
}

// ---- scans Sets the bytes that the kernels of a chunked scan move (ssd_combined.py of mamba_ssm).
// An element has e bytes, or 4 in float32. The forward kernels make, in this order: running sums,
// the states of chunks, the states passed from chunk to chunk, the scores of pairs of tokens, the
// values. The backward kernels make the first four again, then the gradients of the states, the
// gradients passed back from chunk to chunk, dx, dB and dC, the gradients of the scores, dB and dC
// from these, and the gradients of the decays and of the running sums. Scores and keys count once
// for all heads that share B and C, because the other heads find them in the cache.
void measure_scan(const Op& op, const Compute& compute, OpWork& work) {
  const auto size = [&](std::string_view name) { return extent(op, compute, name); };
  const double tokens = size("batch") * size("seq"), heads = size("heads") * size("group"),
               keys = size("heads"), head_dim = size("head_dim"), state = size("state");
  const double chunk = std::min(static_cast<double>(op.integer("chunk")), size("seq"));
  const auto e = static_cast<double>(dtype_bytes(work.dtype));
  const bool forward = !work.gradient;
  const double states = head_dim * state / std::max(chunk, 1.0);  // elements a token and head
  const double a_head = forward ? 3 * e * head_dim + (8 + 2 * e) * states + e + 24
                                : 11 * e * head_dim + (16 + 6 * e) * states + e + 60;
  const double a_key = forward ? 4 * e * state + 8 * chunk : (9 * e + 24) * state + 24 * chunk;
  const double moved = tokens * (heads * a_head + keys * a_key);
  const double operands = work.bytes_read + work.bytes_written;
  if (operands <= 0) return;
  const double written = work.bytes_written / operands;
  work.bytes_read = std::max(work.bytes_read, moved * (1 - written));
  work.bytes_written = std::max(work.bytes_written, moved * written);
}

// Returns the flops of the box, assuming that the flops of the op are spread evenly over its
// iteration space.
double share_of_flops(const Op& op, const Compute& compute) {
  double share = 1;
  for (size_t d = 0; d < op.annotation.dims.size(); ++d) {
    share *= static_cast<double>(compute.box.dims[d].size) /
             static_cast<double>(op.annotation.dims[d].size);
  }
  return static_cast<double>(op_flops(op)) * share;
}

}  // namespace

std::string_view work_class_name(WorkClass work) {
  switch (work) {
    case WorkClass::kMatmul: return "matmul";
    case WorkClass::kConvolution: return "convolution";
    case WorkClass::kAttention: return "attention";
    case WorkClass::kScan: return "scan";
    case WorkClass::kElementwise: return "elementwise";
    case WorkClass::kNorm: return "norm";
    case WorkClass::kLoss: return "loss";
    case WorkClass::kLookup: return "lookup";
    case WorkClass::kRouting: return "routing";
    case WorkClass::kOptimizer: return "optimizer";
    case WorkClass::kMove: return "move";
  }
  return "";
}

// Returns whether the op casts a parameter, or casts or scales the gradient of a parameter. Such an
// op runs once a training step for each tensor. It is treated as a part of the update, because
// frameworks run it for many tensors with one launch.
static bool prepares_parameters(const Graph& graph, const Op& op) {
  const KindInfo& kind = info_of(op);
  if (!kind.converts && !kind.scales) return false;
  if (graph.tensor(op.inputs[0]).role == Role::kParameter) return true;
  const auto gradient = [&](TensorId id) {
    const Tensor& tensor = graph.tensor(id);
    return tensor.role == Role::kGradient && tensor.of.valid() &&
           graph.tensor(tensor.of).role == Role::kParameter;
  };
  return gradient(op.inputs[0]) || gradient(op.outputs[0]);
}

OpWork work_of(const Graph& graph, const Program& program, const Compute& compute, bool families) {
  const Op& op = graph.op(compute.op);
  const KindInfo& kind = info_of(op);
  OpWork work;
  work.kind = *kind.work;
  work.op = kind.name;
  work.view = kind.view;
  work.gradient = kind.gradient;
  work.dtype = arithmetic_of(program, compute);
  work.backward = op.phase == Phase::kBackward;
  work.update = op.phase == Phase::kUpdate || prepares_parameters(graph, op);
  work.block = op.block >= 0;
  work.on_host = std::any_of(compute.outputs.begin(), compute.outputs.end(), [&](const Output& o) {
    return program.buffer(o.view.buffer).tier != Tier::kDevice;
  });
  count_bytes(program, op, compute, work);
  if (families) work.family = family_of(graph, program, compute);
  if (work.kind == WorkClass::kAttention) {
    measure_attention(op, compute, work);
    return work;
  }
  work.flops = share_of_flops(op, compute);
  if (work.kind == WorkClass::kScan) measure_scan(op, compute, work);
  if (work.kind != WorkClass::kMatmul && work.kind != WorkClass::kConvolution) return work;
  if (op.inputs.size() == 1) {
    work.kind = WorkClass::kElementwise;  // with one operand it is a sum or a copy
  } else {
    measure_matmul(op, compute, work);
    // A convolution with groups is a batch of products that are too small for the transform.
    work.winograd =
        work.kind == WorkClass::kConvolution && work.batch == 1 && takes_winograd(op.annotation);
  }
  return work;
}

}  // namespace tessera
