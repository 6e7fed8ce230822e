// The op table. An op kind is defined once, by a row of this table. The row says how operands
// become an annotation and output shapes, what the derivative is, what the op costs, and what
// loops, orders, recomputation and optimizers have to know about the kind. The kind's kernel is
// bound to its name in runtime/kernels. Other code does not compare the names of kinds
// (scripts/lint_rules.py): it asks the row of an op, `info_of(op)`.
//
//   const KindInfo& kind = info_of(op);
//   if (kind.work == WorkClass::kAttention && is_causal(op)) ...
//   if (position_rule(op, op.annotation.find("seq")) != PositionRule::kFree) ...
//
// If a kind does not state a property, users of the table refuse the kind or assume the worst: a
// kind without a work class cannot be added to the table, and a kind without position rules is
// neither reordered nor looped over.
//
// A guide to adding a kind: docs/guides/add-an-op.md. The list with exact operands:
// docs/reference/ops.md.
#pragma once

#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/graph/graph.h"

namespace tessera {

class GraphBuilder;

// The description of an op that is to be added, computed from its input tensors and attributes.
struct Inferred {
  Annotation annotation;                  // with bound sizes
  std::vector<std::vector<Dim>> outputs;  // dims of each output
  std::vector<DType> dtypes;
};

// The types of a derivative rule. The rule receives the gradient tensor of each output i of the
// forward op (invalid if no reader of the output gives a gradient). It returns, for each input i,
// its contribution to the gradient of that input (invalid if there is none, as for integer or
// unused inputs).
using OutputGradients = std::vector<TensorId>;
using InputGradients = std::vector<TensorId>;

// The numbers that an attribute allows: finite numbers x with least <= x < below.
struct NumberRange {
  double least = -std::numeric_limits<double>::infinity();
  double below = std::numeric_limits<double>::infinity();
  bool flag = false;  // only 0 and 1 are allowed
  bool holds(double number) const;
  std::string words() const;  // "a number of at least 0 and below 1", for messages
};
// Returns the range of a number that an optimizer works with. `name` is that of an attribute of an
// update kind or of a key of a run file ("beta1", "lr").
NumberRange optimizer_range(std::string_view name);

// An attribute of a kind. The builder gives an absent attribute the value `otherwise`, so that an
// op always has all attributes of its kind. An attribute without `otherwise` is required. An
// integer is accepted and converted if the type is a number.
struct AttributeInfo {
  enum class Type : uint8_t { kInteger, kNumber, kText };
  std::string name;
  Type type = Type::kInteger;
  std::optional<Attribute> otherwise;
  std::optional<NumberRange> range = std::nullopt;  // allowed numbers; none: any
  bool identity = false;  // serves only to distinguish the op from equal ops (the key of a dropout)
};

// The class of work of an op, for the cost model (cost/op_cost.h) and for recipes that distinguish
// products from ops that are bound by memory.
enum class WorkClass : uint8_t {
  kMatmul,       // product of the first two operands: batch x (m, n, k)
  kConvolution,  // as kMatmul, for the equivalent product (implicit GEMM)
  kAttention,    // fused attention; has query_key, and op dims batch, heads, group and head_dim
  kScan,  // a scan in chunks of `chunk` tokens; op dims batch, seq, heads, group, head_dim, state
  kElementwise,  // bound by memory: activations, sums, dropout, casts
  kNorm,         // works on rows: layer norm, RMS norm, softmax
  kLoss,         // softmax cross entropy over the vocabulary
  kLookup,       // reads rows of an embedding; the gradient adds to rows
  kRouting,      // router, dispatch, combine of experts
  kOptimizer,    // update of parameters
  kMove,         // only moves bytes: transposes, slices, joins
};

// How many bytes of its operands an op of the kind reads and writes.
enum class ByteRule : uint8_t {
  kOperands,   // each operand once
  kTable,      // input 1 is a table; the op reads one of its rows for each row of the output
  kTableGrad,  // adds a row of input 1 to the output for each id
  // Reads the named rows of each floating input before the first ids, and writes the named rows of
  // the outputs that replace these inputs.
  kRows,
  kPart,   // reads only as many bytes of its input as it writes
  kShape,  // reads nothing of input 1, of which only the sizes matter
  kTwice,  // reads its operands once for the statistics and once for the result
};

// The sizes that are the coordinates of a kind's measured times in a profile (cost/family.h).
enum class FamilyRule : uint8_t {
  kByAnnotation,  // update ops: elements; element-wise ops: bytes; other ops: rows and width
  kProduct,       // batch, m, n, k, and the layouts of both operands
  kConvolution,   // m, n, k, and the window
  kNamed,         // KindInfo::sizes, and whether a causal pair leaves points out
  kTable,  // rows and width that are looked up or added; for kTableGrad also rows of the table
  kRows,   // rows and width, and whether the last dim is summed over
};
struct NamedSize {
  std::string name;  // "queries"
  // The size is the product of these dims; a dim that the op lacks counts as 1.
  std::vector<std::string> dims;
};

// A `PositionRule` says how an op's work on an element depends on the position of the element along
// one dim. It follows whether the dim may be reordered (reorder_dim) and looped over (unroll):
//
//   rule      depends on                                             reordered     looped over
//   kUnknown  the kind has not said                                  no            no
//   kFree     nothing                                                yes           yes
//   kSize     how long the whole dim is (a mean; an attribute that   yes           no
//             holds the size), not the place in it
//   kIndex    the index in the whole dim (the row of a table)        no            no
//   kWithin   the index in the whole, which attribute `within`       no            yes: `within`
//             (within.h) tells of a piece                                          is written
//   kOrder    the position in the order that attribute `order`       yes, once:    no
//             (order.h) names                                        `order` is
//                                                                    written
//   kCausal   as kOrder; a dim of a causal pair of the annotation    yes, once     yes: a step reads
//                                                                                  keys up to it
//
// A kind that states kFree promises that a piece of the result needs only the same piece of
// the operands, and that, if the dim is summed over, the results of the pieces add up to the
// whole result.
enum class PositionRule : uint8_t { kUnknown, kFree, kSize, kIndex, kWithin, kOrder, kCausal };

// The op dims of queries and keys, of an op that compares each query with each key.
struct QueryKey {
  int query = -1, key = -1;
  bool skips = false;  // a query and a key after it (at a later position) are no work
  // A query and a key that are at least `window` positions apart are no work either; 0: no limit.
  int64_t window = 0;
};

// The operands that an op of an update kind reads after the parameter and its gradient, in order.
// The op computes either the parameter's whole update (optimizers.h) or only its direction, which
// other ops apply. The last operands may be the coefficient of gradient clipping and a flag that
// skips the step.
struct OptimizerInfo {
  std::vector<std::string> states;  // "m": for each parameter one tensor optimizer.m.<parameter>
  std::vector<Init::Kind> scalars;  // scalars that the trainer provides in each step
  // The kind updates only the rows of a table that were looked up. Its ops read the parameter, the
  // states, then ids and dy of each look-up, then the scalars. They read no gradient with the
  // table's dims.
  bool by_rows = false;
  bool state_a_row = false;  // the states have one number for each row
};

// The operands of a kind that names rows of a table by compressed rows (as in a CSR matrix). Row i
// of the op reads only the rows of the table whose numbers are in `columns` at begin[i] .. end[i],
// or adds only to these rows. The attributes sampler, width, seed and each_step may choose some of
// them (sparse/graphs/named_rows.h).
struct RowNaming {
  size_t begin = 0, end = 1, columns = 2;  // numbers of inputs of the op
  // The number of the input, or of the output, that is the table. The other number is -1.
  int input = -1, output = -1;
};

struct KindInfo {
  std::string name;
  std::string summary;
  size_t min_inputs = 1, max_inputs = 1;
  // The names of the outputs, if there is more than one: their tensors are named <path>.<name>.
  std::vector<std::string> output_names = {};
  size_t outputs = 1;
  std::vector<AttributeInfo> attributes = {};  // allowed attributes
  std::function<Result<Inferred>(const Graph&, const std::vector<TensorId>& inputs,
                                 const Attributes&)>
      infer = nullptr;
  // The derivative rule; null: the kind is not differentiable (update ops, gradient kinds).
  // `wanted[i]` says whether input i needs a gradient. A contribution may be one of the given
  // output gradients itself. The op is passed as a copy, which stays valid while the rule adds ops.
  std::function<InputGradients(GraphBuilder&, const Op&, const OutputGradients&,
                               const std::vector<bool>& wanted)>
      differentiate = nullptr;
  // Returns the flops of the whole op, from the sizes in its annotation.
  std::function<int64_t(const Op&)> flops = nullptr;

  // ---- cost
  std::optional<WorkClass> work = std::nullopt;  // required
  ByteRule bytes = ByteRule::kOperands;
  FamilyRule family = FamilyRule::kByAnnotation;
  std::vector<NamedSize> sizes = {};  // for FamilyRule::kNamed
  // The output has the bytes of the input under other dims, so that a framework with views
  // copies nothing.
  bool view = false;
  // Whether the kind computes the whole derivative of another kind in one kernel, so that it has
  // more work than the other kind.
  bool gradient = false;
  // The number of the output that holds the statistics for the gradient of the op; -1: there
  // is none.
  int statistics = -1;

  // ---- positions
  // null: the rule is kUnknown for all dims
  PositionRule (*position)(const Op&, int op_dim) = nullptr;
  std::optional<QueryKey> (*query_key)(const Op&) = nullptr;
  // Attributes that list dims with their sizes ("a=2 b=8"). In each piece of a loop they get the
  // sizes of the piece.
  std::vector<std::string> size_attributes = {};
  // The number of an input that is added once to a sum; -1: there is none. In a loop over a summed
  // dim only the first piece reads this input. The other pieces run without it, with the attributes
  // that `without_added` returns. `without_added` is called only for ops that have the input.
  int added_once = -1;
  Attributes (*without_added)(const Op&) = nullptr;

  // ---- rows of tables
  std::optional<RowNaming> names_rows = std::nullopt;

  // ---- what it means
  // The output is the inputs merged element by element by this combiner. If any number of inputs is
  // allowed (max_inputs = SIZE_MAX), all inputs have the output's dims, and a plan may merge them
  // in place one after the other.
  std::optional<Combiner> merges = std::nullopt;
  bool converts = false;  // the output is the input in another dtype
  // The op computes in the dtype of its input 1, a table of which it reads few rows. If a model
  // computes in a narrower dtype, the result of the op is therefore converted, and not the
  // whole table.
  bool in_dtype_of_table = false;
  bool scales = false;  // the output is the input times a constant
  std::optional<OptimizerInfo> optimizer = std::nullopt;

  // ---- what a plan may do
  // f(a1+b1, a2+b2) = f(a1, a2) + f(b1, b2). An op of the kind may work on parts of a sum if all
  // its inputs have the output's dims (is_linear).
  bool linear = false;
  // Output i may be written in place over input i (of equal dims and dtype), element by element.
  bool in_place = false;
  // No gradient passes through the op: nothing that its inputs are made from is trained through it.
  bool stops_gradient = false;
  // The kernel can add to its outputs (out += f(in)) instead of overwriting them. This holds for
  // the outputs from number first_accumulating on.
  bool accumulates = false;
  size_t first_accumulating = 0;
  // `expand` (optional) makes the op from ops with fewer frozen dims. It is used when a plan splits
  // a dim that is frozen in the op (layer norm over a split hidden dim). It adds ops to the builder
  // and returns tensors with the dims and dtypes of the op's outputs. It may return an invalid
  // tensor for an output that only the fused derivative reads. `expandable` returns the names of
  // the frozen dims that the expansion makes divisible. If `expandable` is null, the op is expanded
  // only where a plan asks for it (plan key `expand`).
  std::vector<std::string> (*expandable)(const Op&) = nullptr;
  std::function<std::vector<TensorId>(GraphBuilder&, const Op&)> expand = nullptr;
};

const KindInfo* find_kind(std::string_view name);  // null if the kind is unknown
std::vector<const KindInfo*> all_kinds();          // in order of their names
const KindInfo& info_of(const Op& op);             // for an op of a known kind; costs no look-up

PositionRule position_rule(const Op& op, int op_dim);
// Returns whether the op's work on a piece depends on the position of the piece along the dim and
// not only on its size. The kind's position rule says so, or an input is added once to a sum over
// the dim. If the result is false, a kernel call prepared for one micro-batch serves all
// micro-batches that use the same memory.
bool reads_position(const Op& op, int op_dim);
std::optional<QueryKey> query_key_of(const Op& op);
// Checks whether a loop over a group of ops may cut this dim of the op. The error says why not:
// "cannot be cut".
Status check_loopable(const Op& op, int op_dim);
// Returns whether the op merges any number of terms with the output's dims, element by element
// (add_n, max_n). The second function returns whether it also merges them by a sum.
bool merges_terms(const Op& op);
bool is_sum_of_terms(const Op& op);

// The attribute `sum_dtype` of an op that sums over dims. Those outputs that lack a dim of the op
// then have that dtype. The kernel's result (in the dtype of its first floating operand) is
// converted to `sum_dtype` before it is added, so that sums over micro-batches and ranks are taken
// in `sum_dtype`.
inline constexpr std::string_view kSumDType = "sum_dtype";
std::optional<DType> sum_dtype(const Op& op);
// Returns whether that output has the dtype that `sum_dtype` names.
bool has_sum_dtype(const Op& op, size_t output);
// Gives the attribute `sum_dtype` = `dtype` to the op that makes the tensor. Returns false and
// changes nothing if the tensor is no sum, or if the attribute would also change another output of
// the op that is not in `also`.
bool widen_sum(Graph& graph, TensorId tensor, DType dtype, const std::vector<TensorId>& also = {});

// Checks kind, number of inputs and attributes, fills in default attributes, and infers the result.
// Error messages lack the op's path. Callers put the path before the message.
Result<Inferred> infer_op(const Graph& graph, std::string_view kind,
                          const std::vector<TensorId>& inputs, Attributes& attributes);

// Returns whether the op reads those rows of its input 1 (a table) that its input 0 (ids) names.
bool looks_up_rows(const Op& op);
// Returns whether the op looks up or updates only rows of that input which ids name.
bool touches_rows(const Op& op, size_t input);

// Returns whether the op may work on parts of a sum: its kind is linear, and no input is broadcast.
bool is_linear(const Op& op);
bool accumulates(const Op& op, size_t output);  // whether its kernel can add to that output
int64_t op_flops(const Op& op);                 // for the whole op

}  // namespace tessera
