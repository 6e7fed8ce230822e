// How much work an instruction is: one row of the table a kind, sizes from its box and views.
#include <algorithm>
#include <array>
#include <cmath>

#include "tessera/base/check.h"
#include "tessera/cost/op_cost.h"
#include "tessera/graph/kinds.h"
#include "tessera/graph/order.h"

namespace tessera {
namespace {

// What of its operands a kind moves, where that is not each operand once.
enum class Bytes : uint8_t {
  kOperands,
  kTable,      // input 1 is a table, of which it reads a row for each row of the output
  kTableGrad,  // adds a row of input 1 into the output for each id
  kPart,       // reads of its input no more than it writes
  kShape,      // input 1 gives sizes only
  kTwice,      // reads its operands once for the statistics and once for the result
};

struct KindRule {
  std::string_view kind;
  WorkClass work;
  Bytes bytes = Bytes::kOperands;
  bool view = false;
};

// By kind, sorted: docs/reference/ops.md lists what each does.
constexpr std::array kRules = {
    KindRule{"adamw", WorkClass::kOptimizer},
    KindRule{"add", WorkClass::kElementwise},
    KindRule{"add_n", WorkClass::kElementwise},
    KindRule{"attention", WorkClass::kAttention},
    KindRule{"attention_grad", WorkClass::kAttention},
    KindRule{"avg_pool", WorkClass::kElementwise},
    KindRule{"avg_pool_grad", WorkClass::kElementwise},
    KindRule{"batch_apply", WorkClass::kNorm},
    KindRule{"batch_grad_apply", WorkClass::kNorm},
    KindRule{"batch_grad_params", WorkClass::kNorm},
    KindRule{"batch_grad_sums", WorkClass::kNorm},
    KindRule{"batch_moments", WorkClass::kNorm},
    KindRule{"batch_norm", WorkClass::kNorm, Bytes::kTwice},
    KindRule{"batch_norm_grad", WorkClass::kNorm, Bytes::kTwice},
    KindRule{"broadcast_to", WorkClass::kMove},
    KindRule{"cast", WorkClass::kElementwise},
    KindRule{"causal_conv", WorkClass::kElementwise},
    KindRule{"causal_conv_grad", WorkClass::kElementwise},
    KindRule{"causal_mask", WorkClass::kElementwise},
    KindRule{"clip_coefficient", WorkClass::kOptimizer},
    KindRule{"concat", WorkClass::kMove},
    KindRule{"conv", WorkClass::kConvolution},
    KindRule{"conv_input_grad", WorkClass::kConvolution},
    KindRule{"conv_weight_grad", WorkClass::kConvolution},
    KindRule{"cross_entropy", WorkClass::kLoss},
    KindRule{"cross_entropy_grad", WorkClass::kLoss},
    KindRule{"dropout", WorkClass::kElementwise},
    KindRule{"einsum", WorkClass::kMatmul},
    KindRule{"embedding", WorkClass::kLookup, Bytes::kTable},
    KindRule{"embedding_grad", WorkClass::kLookup, Bytes::kTableGrad},
    KindRule{"exp", WorkClass::kElementwise},
    KindRule{"fill", WorkClass::kMove},
    KindRule{"gelu", WorkClass::kElementwise},
    KindRule{"gelu_grad", WorkClass::kElementwise},
    KindRule{"group", WorkClass::kMove, Bytes::kOperands, true},
    KindRule{"layer_norm", WorkClass::kNorm},
    KindRule{"layer_norm_grad", WorkClass::kNorm},
    KindRule{"logsumexp_reduce", WorkClass::kNorm},
    KindRule{"loss_scale", WorkClass::kOptimizer},
    KindRule{"max_n", WorkClass::kElementwise},
    KindRule{"max_pool", WorkClass::kElementwise},
    KindRule{"max_pool_grad", WorkClass::kElementwise},
    KindRule{"moe_balance", WorkClass::kRouting},
    KindRule{"moe_balance_grad", WorkClass::kRouting, Bytes::kShape},
    KindRule{"moe_combine", WorkClass::kRouting},
    KindRule{"moe_dispatch", WorkClass::kRouting},
    KindRule{"moe_route", WorkClass::kRouting},
    KindRule{"moe_route_grad", WorkClass::kRouting},
    KindRule{"moe_slot_weight", WorkClass::kRouting},
    KindRule{"moe_slot_weight_grad", WorkClass::kRouting},
    KindRule{"moe_weight_grad", WorkClass::kRouting},
    KindRule{"moe_z_loss", WorkClass::kRouting},
    KindRule{"moe_z_loss_grad", WorkClass::kRouting},
    KindRule{"mul", WorkClass::kElementwise},
    KindRule{"non_finite", WorkClass::kOptimizer},
    KindRule{"norm_apply", WorkClass::kNorm},
    KindRule{"norm_finish", WorkClass::kNorm},
    KindRule{"norm_grad_apply", WorkClass::kNorm},
    KindRule{"norm_grad_params", WorkClass::kNorm},
    KindRule{"norm_grad_sums", WorkClass::kNorm},
    KindRule{"norm_moments", WorkClass::kNorm},
    KindRule{"rearrange", WorkClass::kMove},
    KindRule{"reduce_max", WorkClass::kElementwise},
    KindRule{"reduce_sum", WorkClass::kElementwise},
    KindRule{"relu", WorkClass::kElementwise},
    KindRule{"relu2", WorkClass::kElementwise},
    KindRule{"relu2_grad", WorkClass::kElementwise},
    KindRule{"relu_grad", WorkClass::kElementwise},
    KindRule{"rename", WorkClass::kMove, Bytes::kOperands, true},
    KindRule{"reorder", WorkClass::kMove},
    KindRule{"rms_apply", WorkClass::kNorm},
    KindRule{"rms_finish", WorkClass::kNorm},
    KindRule{"rms_grad_apply", WorkClass::kNorm},
    KindRule{"rms_grad_params", WorkClass::kNorm},
    KindRule{"rms_grad_sum", WorkClass::kNorm},
    KindRule{"rms_norm", WorkClass::kNorm},
    KindRule{"rms_norm_grad", WorkClass::kNorm},
    KindRule{"rms_square", WorkClass::kNorm},
    KindRule{"roll", WorkClass::kMove},
    KindRule{"rotary", WorkClass::kElementwise},
    KindRule{"scale", WorkClass::kElementwise},
    KindRule{"sgd", WorkClass::kOptimizer},
    KindRule{"sigmoid", WorkClass::kElementwise},
    KindRule{"silu", WorkClass::kElementwise},
    KindRule{"silu_grad", WorkClass::kElementwise},
    KindRule{"slice", WorkClass::kMove, Bytes::kPart},
    KindRule{"slice_grad", WorkClass::kMove},
    KindRule{"softmax", WorkClass::kNorm},
    KindRule{"softmax_apply", WorkClass::kElementwise},
    KindRule{"softmax_grad", WorkClass::kNorm},
    KindRule{"softmax_grad_apply", WorkClass::kElementwise},
    KindRule{"softplus", WorkClass::kElementwise},
    KindRule{"state_scan", WorkClass::kScan},
    KindRule{"state_scan_grad", WorkClass::kScan},
    KindRule{"stop_gradient", WorkClass::kMove, Bytes::kOperands, true},
    KindRule{"sub", WorkClass::kElementwise},
    KindRule{"sum_squares", WorkClass::kOptimizer},
    KindRule{"transpose", WorkClass::kMove},
    KindRule{"ungroup", WorkClass::kMove, Bytes::kOperands, true},
    KindRule{"unscale", WorkClass::kOptimizer},
};
static_assert(std::is_sorted(kRules.begin(), kRules.end(),
                             [](const KindRule& a, const KindRule& b) { return a.kind < b.kind; }));

const KindRule& rule_of(std::string_view kind) {
  const auto* found = std::lower_bound(
      kRules.begin(), kRules.end(), kind,
      [](const KindRule& rule, std::string_view name) { return rule.kind < name; });
  TESSERA_CHECK(found != kRules.end() && found->kind == kind,
                "the kind '{}' has no row in the table of op_work.cc", kind);
  return *found;
}

double extent(const Compute& compute, int op_dim) {
  return static_cast<double>(compute.box.dims[static_cast<size_t>(op_dim)].size);
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

void count_bytes(const Program& program, const Compute& compute, Bytes rule, OpWork& work) {
  double rows = 0;  // bytes of the outputs, or of the rows that are moved
  for (const Output& output : compute.outputs) {
    const ViewSize size = size_of(program, output.view);
    work.elements = std::max(work.elements, size.elements);
    const bool adds = output.write == Write::kAdd ||
                      (output.write == Write::kAddExceptFirst && program.micro_batches > 1);
    if (rule == Bytes::kTableGrad && adds) continue;  // touches the rows alone
    work.bytes_written += size.bytes;
    rows += size.bytes;
    if (adds) work.bytes_read += size.bytes;
  }
  for (size_t i = 0; i < compute.inputs.size(); ++i) {
    const View& view = compute.inputs[i];
    if (i > 0 && rule == Bytes::kShape && i == 1) continue;
    if (i == 1 && view == compute.inputs[0]) continue;  // a * a
    const ViewSize size = size_of(program, view);
    if (i == 1 && rule == Bytes::kTable) {
      work.bytes_read += rows;
      continue;
    }
    work.elements = std::max(work.elements, size.elements);
    work.bytes_read += rule == Bytes::kPart    ? std::min(size.bytes, work.bytes_written)
                       : rule == Bytes::kTwice ? 2 * size.bytes
                                               : size.bytes;
    if (i == 1 && rule == Bytes::kTableGrad) {  // each row: read, added to, written
      work.bytes_read += size.bytes;
      work.bytes_written += size.bytes;
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

// Dims of a, b and the output are the batch; of a and the output m; of b and the output n; the
// others are summed over: k. Of a convolution these are the sizes of its implicit product: the
// elements of the kernel go with the channels of x, the positions with the batch.
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
    size *= extent(compute, dim);
    if (kept && dim == last_a) a_ends_in_k = false;
    if (!kept && dim == last_b) b_ends_in_n = false;
    if (in_a && in_b && kept && annotation.dims[d].name == "experts") work.grouped = true;
  }
  constexpr std::array<std::string_view, 4> kLayouts = {"tt", "tn", "nt", "nn"};
  work.layout = kLayouts[(a_ends_in_k ? 2 : 0) + (b_ends_in_n ? 1 : 0)];
}

// 3 x 3 kernels with stride 1: fewer multiplications by Winograd's transform.
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
  const Annotation& annotation = op.annotation;
  const int seq = annotation.find("seq"), kv = annotation.find("kv");
  const auto size = [&](std::string_view name) { return extent(compute, annotation.find(name)); };
  work.batch = size("batch");
  work.queries = extent(compute, seq);
  work.keys = extent(compute, kv);
  work.key_heads = size("heads");
  work.heads = work.key_heads * size("group");
  work.head_dim = size("head_dim");
  const double points = work.queries * work.keys;
  work.visible = points > 0 ? visible_points(op, compute.box) / points : 0;
  // Two products of 2 flops a point forward, five backward (graph/kinds/attention.cc).
  const double products = work.op == "attention_grad" ? 5 : 2;
  work.flops = products * 2 * work.batch * work.heads * work.queries * work.keys * work.head_dim *
               work.visible;
}

// ---- scans
// Arrays that the kernels of a chunked scan move, in order (ssd_combined.py of mamba_ssm; e bytes
// an element, 4 of what is float32). Forward: running sums; states of chunks; states handed on;
// scores of pairs; values. Backward: the first four again, gradients of states, those handed back,
// dx, dB, dC, gradients of scores, dB and dC from them, of the decays, of the sums. Heads that
// share B and C find scores and keys in the cache.
void measure_scan(const Op& op, const Compute& compute, OpWork& work) {
  const auto size = [&](std::string_view name) {
    return extent(compute, op.annotation.find(name));
  };
  const double tokens = size("batch") * size("seq"), heads = size("heads") * size("group"),
               keys = size("heads"), head_dim = size("head_dim"), state = size("state");
  const double chunk = std::min(static_cast<double>(op.integer("chunk")), size("seq"));
  const auto e = static_cast<double>(dtype_bytes(work.dtype));
  const bool forward = op.kind == "state_scan";
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

// The op's flops spread evenly over its iteration space.
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

WorkClass work_class_of(std::string_view kind) { return rule_of(kind).work; }

// Casts of parameters, and casts and scalings of their gradients, come once a step, one a tensor:
// frameworks do them for many tensors with one launch, as they update them.
static bool prepares_parameters(const Graph& graph, const Op& op) {
  if ((op.kind != "cast" && op.kind != "scale") || op.inputs.empty()) return false;
  if (graph.tensor(op.inputs[0]).role == Role::kParameter) return true;
  const auto gradient = [&](TensorId id) {
    const Tensor& tensor = graph.tensor(id);
    return tensor.role == Role::kGradient && tensor.of.valid() &&
           graph.tensor(tensor.of).role == Role::kParameter;
  };
  return gradient(op.inputs[0]) || gradient(op.outputs[0]);
}

// "blocks.3....": blocks of other names (heads that predict tokens further ahead) are kept in 16
// bits by recipes that narrow the others (keep_mtp_spec_in_bf16 of Megatron-Bridge).
static bool in_numbered_block(std::string_view path) {
  constexpr std::string_view kBlocks = "blocks.";
  return path.starts_with(kBlocks) && path.size() > kBlocks.size() && path[kBlocks.size()] >= '0' &&
         path[kBlocks.size()] <= '9';
}

OpWork work_of(const Graph& graph, const Program& program, const Compute& compute, bool families) {
  const Op& op = graph.op(compute.op);
  const KindRule& rule = rule_of(op.kind);
  OpWork work;
  work.kind = rule.work;
  work.op = rule.kind;
  work.view = rule.view;
  work.dtype = arithmetic_of(program, compute);
  work.backward = op.phase == Phase::kBackward;
  work.update = op.phase == Phase::kUpdate || prepares_parameters(graph, op);
  work.block = in_numbered_block(op.path);
  count_bytes(program, compute, rule.bytes, work);
  if (families) work.family = family_of(graph, program, compute);
  if (work.kind == WorkClass::kAttention) {
    measure_attention(op, compute, work);
    return work;
  }
  work.flops = share_of_flops(op, compute);
  if (work.kind == WorkClass::kScan) measure_scan(op, compute, work);
  if (work.kind != WorkClass::kMatmul && work.kind != WorkClass::kConvolution) return work;
  if (op.inputs.size() == 1) {
    work.kind = WorkClass::kElementwise;  // a sum or a copy
  } else {
    measure_matmul(op, compute, work);
    work.winograd = work.kind == WorkClass::kConvolution && takes_winograd(op.annotation);
  }
  return work;
}

}  // namespace tessera
