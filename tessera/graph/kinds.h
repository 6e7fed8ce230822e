// The op table. An op kind is defined once: a row of this table says how operands become an
// annotation and output shapes, what its derivative is, what it costs, and what loops, orders,
// recomputation and optimizers have to know about it. Its kernel is bound to the kind's name in
// runtime/kernels. No other code compares the names of kinds (scripts/lint_rules.py): it asks the
// row, `info_of(op)`.
//
//   const KindInfo& kind = info_of(op);
//   if (kind.work == WorkClass::kAttention && is_causal(op)) ...
//   if (position_rule(op, op.annotation.find("seq")) != PositionRule::kFree) ...
//
// Properties that a kind does not state are refused or taken to be the worst: a kind without a work
// class does not enter the table, and a kind without position rules is neither reordered nor looped
// over.
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

// The description of an op to be added, computed from input tensors and attributes.
struct Inferred {
  Annotation annotation;                  // bound
  std::vector<std::vector<Dim>> outputs;  // dims of each output
  std::vector<DType> dtypes;
};

// The types of a derivative rule: the rule gets, for output i of the forward op, the gradient
// tensor (invalid if no consumer gives one), and returns, for input i, its gradient contribution
// (invalid if none: integer inputs, unused).
using OutputGradients = std::vector<TensorId>;
using InputGradients = std::vector<TensorId>;

// The numbers that an attribute allows: from `least` on and below `below`, without infinity.
struct NumberRange {
  double least = -std::numeric_limits<double>::infinity();
  double below = std::numeric_limits<double>::infinity();
  bool flag = false;  // only 0 and 1
  bool holds(double number) const;
  std::string words() const;  // "a number of at least 0 and below 1", for messages
};
// Returns the range of a number that an optimizer works with, by its name ("beta1", "lr"): an
// attribute of an update kind or a key of a run file.
NumberRange optimizer_range(std::string_view name);

// An attribute of a kind. The builder fills absent attributes with `otherwise`, so that an op
// always carries all of them; an attribute without a default is required. Integers are accepted
// and converted where a number is wanted.
struct AttributeInfo {
  enum class Type : uint8_t { kInteger, kNumber, kText };
  std::string name;
  Type type = Type::kInteger;
  std::optional<Attribute> otherwise;
  std::optional<NumberRange> range = std::nullopt;  // allowed numbers; none: any
  bool identity = false;  // only tells the op from equal ops (the key of its dropout)
};

// The class of work that an op is, for the cost model (cost/op_cost.h) and for recipes that
// distinguish products from passes over memory.
enum class WorkClass : uint8_t {
  kMatmul,       // product of the first two operands: batch x (m, n, k)
  kConvolution,  // as kMatmul, for the product that computes it (implicit GEMM)
  kAttention,    // fused core; has query_key, and op dims batch, heads, group and head_dim
  kScan,         // scan in chunks; op dims batch, seq, heads, group, head_dim, state; `chunk`
  kElementwise,  // passes over memory: activations, sums, dropout, casts
  kNorm,         // layer norm, RMS norm, softmax: rows
  kLoss,         // softmax cross entropy over the vocabulary
  kLookup,       // embedding rows; its gradient scatters
  kRouting,      // router, dispatch, combine of experts
  kOptimizer,    // update of parameters
  kMove,         // transposes, slices, joins: bytes only
};

// The bytes of its operands that a kind moves, where these are not each operand once.
enum class ByteRule : uint8_t {
  kOperands,   // each operand once
  kTable,      // input 1 is a table, of which it reads a row for each row of the output
  kTableGrad,  // adds a row of input 1 into the output for each id
  kRows,       // the rows that ids name in the floating inputs before the first ids, and in the
               // outputs that take their place
  kPart,       // reads only as much of its input as it writes
  kShape,      // input 1 gives sizes only
  kTwice,      // reads its operands once for the statistics and once for the result
};

// The sizes by which measured times of a kind are filed (cost/family.h).
enum class FamilyRule : uint8_t {
  kByAnnotation,  // updates: elements; element-wise: bytes; others: rows and width
  kProduct,       // batch, m, n, k, and the layouts of both operands
  kConvolution,   // m, n, k, and the window
  kNamed,         // KindInfo::sizes, and whether a causal pair leaves points out
  kTable,         // rows and width looked up or added; for kTableGrad also the table's
  kRows,          // rows and width, and whether the last dim is summed over
};
struct NamedSize {
  std::string name;               // "queries"
  std::vector<std::string> dims;  // the size is their product; a dim that the op lacks counts 1
};

// A rule says how an op's work on an element depends on where the element stands along one dim, and
// so whether the dim may be reordered (reorder_dim) and looped over (unroll):
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
// kFree is a promise: a piece of the result needs only the same piece of the operands, and over a
// dim that is summed the results of the pieces add up.
enum class PositionRule : uint8_t { kUnknown, kFree, kSize, kIndex, kWithin, kOrder, kCausal };

// The op dims of queries and keys of an op that compares each query with each key.
struct QueryKey {
  int query = -1, key = -1;
  bool skips = false;  // points whose key is behind their query are no work
  // Points whose key and query are at least `window` apart are no work either; 0: no limit.
  int64_t window = 0;
};

// The operands of an update kind, behind the parameter and its gradient, in order. The kind makes
// all of a parameter's step (optimizers.h) or its direction, which other ops apply. A gradient
// clipping coefficient and a flag that skips the step may follow.
struct OptimizerInfo {
  std::vector<std::string> states;  // "m": one tensor a parameter, optimizer.m.<parameter>
  std::vector<Init::Kind> scalars;  // scalars that the trainer makes for each step
  // The kind updates the rows of a table that were looked up, and reads (p, states, then ids and dy
  // of each look-up, then the scalars) instead of a gradient with the table's dims.
  bool by_rows = false;
  bool state_a_row = false;  // its states have one number for each row
};

// The operands of a kind that names rows of a table (an input, or an output) by compressed rows:
// row i of the op reads, or adds to, only the rows of the table that `columns` has at begin[i] ..
// end[i], or those of them that the attributes sampler, width, seed and each_step choose
// (sparse/graphs/named_rows.h).
struct RowNaming {
  size_t begin = 0, end = 1, columns = 2;  // inputs
  int input = -1, output = -1;             // the table: one of them
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
  // The derivative rule; null: not differentiable (update ops, gradient kinds). `wanted[i]`: input
  // i needs a gradient. A contribution may be the given output gradient itself. The op passed in is
  // a copy: adding ops does not disturb it.
  std::function<InputGradients(GraphBuilder&, const Op&, const OutputGradients&,
                               const std::vector<bool>& wanted)>
      differentiate = nullptr;
  std::function<int64_t(const Op&)> flops = nullptr;  // for the whole op, from annotation sizes

  // ---- cost
  std::optional<WorkClass> work = std::nullopt;  // required
  ByteRule bytes = ByteRule::kOperands;
  FamilyRule family = FamilyRule::kByAnnotation;
  std::vector<NamedSize> sizes = {};  // for FamilyRule::kNamed
  bool view = false;      // equal bytes under other dims: a framework with views copies nothing
  bool gradient = false;  // one kernel for the derivative of another kind, with more work
  // The output that holds the statistics which the op keeps for its gradient; -1: none.
  int statistics = -1;

  // ---- positions
  PositionRule (*position)(const Op&, int op_dim) = nullptr;  // null: kUnknown for all dims
  std::optional<QueryKey> (*query_key)(const Op&) = nullptr;
  // Attributes that list dims with their sizes ("a=2 b=8"): a loop writes the sizes of its pieces.
  std::vector<std::string> size_attributes = {};
  // An input that is added to a sum once: the first piece of a loop over a summed dim reads this
  // input, the other pieces run without it, with the attributes that this function gives. -1: none.
  // The function is only called for ops that have the input.
  int added_once = -1;
  Attributes (*without_added)(const Op&) = nullptr;

  // ---- rows of tables
  std::optional<RowNaming> names_rows = std::nullopt;

  // ---- what it means
  // The output is the inputs merged element by element. With any number of inputs (max_inputs =
  // SIZE_MAX) all have the output's dims, and a plan may accumulate them in place.
  std::optional<Combiner> merges = std::nullopt;
  bool converts = false;  // the output is the input in another dtype
  // Computes in the dtype of its input 1, a table of which it reads little: where a model computes
  // in a narrower dtype, the result is converted and not the table.
  bool in_dtype_of_table = false;
  bool scales = false;  // the output is the input times a constant
  std::optional<OptimizerInfo> optimizer = std::nullopt;

  // ---- what a plan may do
  // f(a1+b1, a2+b2) = f(a1, a2) + f(b1, b2): the op may work on parts of a sum if all inputs have
  // the output's dims (is_linear).
  bool linear = false;
  // Output i may be written over input i (same dims, dtype) element by element.
  bool in_place = false;
  // The derivative ends here: nothing behind the op is trained through it.
  bool stops_gradient = false;
  // The kernel can add to its outputs (out += f(in)) instead of overwriting them, from output
  // first_accumulating on.
  bool accumulates = false;
  size_t first_accumulating = 0;
  // Optional: makes the op from ops with fewer frozen dims, used when a plan splits a dim that is
  // frozen here (layer norm over a split hidden dim). Adds ops to the builder and returns tensors
  // equal in dims and dtype to the op's outputs; an invalid tensor for an output that only a fused
  // derivative reads. `expandable` names the frozen dims that the expansion frees; null: expanded
  // only where a plan asks for it (`expand`).
  std::vector<std::string> (*expandable)(const Op&) = nullptr;
  std::function<std::vector<TensorId>(GraphBuilder&, const Op&)> expand = nullptr;
};

const KindInfo* find_kind(std::string_view name);  // null if unknown
std::vector<const KindInfo*> all_kinds();          // by name
const KindInfo& info_of(const Op& op);             // for a known kind; costs no look-up

PositionRule position_rule(const Op& op, int op_dim);
// Returns whether the op's work on a piece depends on where the piece lies along the dim, and not
// only on its size: by its rule, or because an input is added once to a sum over the dim. If not, a
// call prepared for one micro-batch serves all micro-batches that use the same memory.
bool reads_position(const Op& op, int op_dim);
std::optional<QueryKey> query_key_of(const Op& op);
// Checks whether a loop over a group of ops may cut this dim of the op. Errors say why not: "cannot
// be cut".
Status check_loopable(const Op& op, int op_dim);
// Returns whether the op merges any number of terms with the output's dims, element by element
// (add_n, max_n), and, below, whether it sums them.
bool merges_terms(const Op& op);
bool is_sum_of_terms(const Op& op);

// An op that sums over dims may carry the attribute `sum_dtype`: its outputs that lack a dim of the
// op then have that dtype. The kind's own result (of its first floating operand's dtype) is
// converted to it before it is added, so sums over micro-batches and ranks are taken in it.
inline constexpr std::string_view kSumDType = "sum_dtype";
std::optional<DType> sum_dtype(const Op& op);
// Returns whether that output is of the dtype `sum_dtype`.
bool has_sum_dtype(const Op& op, size_t output);
// Gives the attribute to the op that makes the tensor. Returns false, without any change, if the
// tensor is no sum or another output of the op, which `also` does not name, would change too.
bool widen_sum(Graph& graph, TensorId tensor, DType dtype, const std::vector<TensorId>& also = {});

// Checks kind, number of inputs and attributes, fills in default attributes, infers. Messages lack
// the op's path: callers put it in front.
Result<Inferred> infer_op(const Graph& graph, std::string_view kind,
                          const std::vector<TensorId>& inputs, Attributes& attributes);

// Returns whether the op reads the rows of its input 1 (a table) that its input 0 (ids) names.
bool looks_up_rows(const Op& op);
// Returns whether the op touches only the rows of that input that ids name, to look up or update.
bool touches_rows(const Op& op, size_t input);

bool is_linear(const Op& op);  // may work on parts of a sum: a linear kind, no input broadcast
bool accumulates(const Op& op, size_t output);  // its kernel can add to that output
int64_t op_flops(const Op& op);                 // for the whole op

}  // namespace tessera
