// The op table. An op kind is defined once: its summary, how operands become an annotation and
// output shapes, its derivative, its flop count, and the name of its kernel (runtime/kernels binds
// it). A guide to adding one: docs/guides/add-an-op.md. The list with exact operands:
// docs/reference/ops.md.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/graph/graph.h"

namespace tessera {

class GraphBuilder;

// What an op needs to be added: computed from input tensors and attributes.
struct Inferred {
  Annotation annotation;                  // bound
  std::vector<std::vector<Dim>> outputs;  // dims of each output
  std::vector<DType> dtypes;
};

// In a derivative rule: for output i of the forward op, the gradient tensor (invalid if no consumer
// gives one); returns, for input i, its gradient contribution (invalid if none: integer inputs,
// unused).
using OutputGradients = std::vector<TensorId>;
using InputGradients = std::vector<TensorId>;

// An attribute of a kind. The builder fills absent ones with `otherwise`, so that an op always
// carries all of them; one without a default is required. Integers are accepted and converted where
// a number is wanted.
struct AttributeInfo {
  enum class Type : uint8_t { kInteger, kNumber, kText };
  std::string name;
  Type type = Type::kInteger;
  std::optional<Attribute> otherwise;
};

struct KindInfo {
  std::string name;
  std::string summary;
  size_t min_inputs = 1, max_inputs = 1;
  std::vector<std::string> output_names =
      {};  // with more than one output: their tensors are named <path>.<name>
  size_t outputs = 1;
  std::vector<AttributeInfo> attributes = {};  // allowed attributes
  std::function<Result<Inferred>(const Graph&, const std::vector<TensorId>& inputs,
                                 const Attributes&)>
      infer = nullptr;
  // Null: not differentiable (update ops, gradient kinds). `wanted[i]`: input i needs a gradient. A
  // contribution may be the given output gradient itself. The op passed in is a copy: adding ops
  // does not disturb it.
  std::function<InputGradients(GraphBuilder&, const Op&, const OutputGradients&,
                               const std::vector<bool>& wanted)>
      differentiate = nullptr;
  std::function<int64_t(const Op&)> flops = nullptr;  // of the whole op, from annotation sizes
  // f(a1+b1, a2+b2) = f(a1, a2) + f(b1, b2): may work on parts of a sum if all inputs have the
  // output's dims (is_linear).
  bool linear = false;
  // Output i may be written over input i (same dims, dtype) element by element.
  bool in_place = false;
  // The derivative ends here: nothing behind the op is trained through it.
  bool stops_gradient = false;
  // The kernel can add to its outputs (out += f(in)) instead of overwriting them: those from
  // first_accumulating on.
  bool accumulates = false;
  size_t first_accumulating = 0;
  // Optional: the same function as ops with fewer frozen dims, used when a plan splits a dim that
  // is frozen here (layer norm over a split hidden dim). Adds ops to the builder; must produce
  // tensors equal in dims and dtype to the op's outputs and returns them; an invalid one for an
  // output that only a fused derivative reads. `expandable` names the frozen dims that the
  // expansion frees; null: expanded only where a plan asks for it (`expand`).
  std::vector<std::string> (*expandable)(const Op&) = nullptr;
  std::function<std::vector<TensorId>(GraphBuilder&, const Op&)> expand = nullptr;
};

const KindInfo* find_kind(std::string_view name);  // null if unknown
std::vector<const KindInfo*> all_kinds();          // by name

// Any op that sums over dims may carry the attribute `sum_dtype`: its outputs that lack a dim of
// the op are then of that dtype, into which the kind's own result (of its first floating operand's
// dtype) is converted before it is added to what is there: sums over micro-batches and over ranks
// are taken in it.
inline constexpr std::string_view kSumDType = "sum_dtype";
std::optional<DType> sum_dtype(const Op& op);
// Is that output one of them?
bool has_sum_dtype(const Op& op, size_t output);
// Gives the op that makes the tensor that attribute; false, and nothing changes, if the tensor is
// no sum or another output of the op would change too that `also` does not name.
bool widen_sum(Graph& graph, TensorId tensor, DType dtype, const std::vector<TensorId>& also = {});

// Checks kind, number of inputs and attributes, fills in default attributes, infers. Messages lack
// the op's path: callers put it in front.
Result<Inferred> infer_op(const Graph& graph, std::string_view kind,
                          const std::vector<TensorId>& inputs, Attributes& attributes);

bool is_linear(const Op& op);  // may work on parts of a sum: a linear kind, no input broadcast
bool accumulates(const Op& op, size_t output);  // its kernel can add to that output
int64_t op_flops(const Op& op);                 // of the whole op
int64_t op_bytes(const Graph& graph,
                 const Op& op);  // of its inputs and outputs: what a kernel moves at least

}  // namespace tessera
