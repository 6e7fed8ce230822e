// The table of the ops of an exported program. A row is a function that lowers a node (lower.h).
// The function unifies the dims of the operands, registers a step that later adds ops to the graph,
// and sets the node's outputs. If all operands of a node are known at import, fold() computes the
// result and the row is not called.
//
// To add an op, add a row to the table of the file that has related ops, and a case to
// tests/import.
#pragma once

#include <map>
#include <string_view>

#include "tessera/import/pt2/lower.h"

namespace tessera::pt2 {

using Row = Status (*)(const Call&);
using Rows = std::map<std::string_view, Row>;  // by the op's name: "linear" for aten.linear.default

Rows pointwise_rows();
Rows shape_rows();
Rows product_rows();
Rows convolution_rows();
Rows attention_rows();
Rows norm_rows();
Rows loss_rows();
Rows integer_rows();
Rows expert_rows();

// Lowers a node that reads routed tensors (routing.h).
Status lower_routed(const Call& call, std::string_view op);

// Returns the row of an op, or null if there is no such op.
Row find_row(std::string_view name);

// Returns the result of a node whose tensor operands are all known at import; nothing if the result
// cannot be computed.
std::optional<Constant> fold(const Call& call, std::string_view name);
// Returns whether fold() can compute the op.
bool folds_op(std::string_view name);
// Returns whether fold() can compute the op from the shapes of its operands alone (zeros_like).
bool folds_shape(std::string_view name);
// Returns the outputs of a node that cuts into parts a tensor whose value is known at import; an
// empty list for other nodes.
std::vector<Constant> fold_parts(const Call& call, std::string_view name);

// ---- for the rows
// Unifies the dims of the operands of an element-wise op, aligned at the last dim as in PyTorch.
// Returns the dims of the result.
Result<std::vector<Vars>> common_dims(const Call& call, std::vector<Value>& operands);
// The graph's tensors of the operands of an element-wise op, in the second pass. One tensor has all
// `dims`; the other tensors have some of these dims, in the same order.
struct Operands {
  std::vector<TensorId> ids;
  Vars dims;
};
Operands common_operands(Emitter& emitter, const std::vector<Value>& operands, const Vars& flat);
// Makes the result of an element-wise op of kind `kind` over operands of equal or broadcast dims.
Result<Value> pointwise(const Call& call, std::string name, std::string kind,
                        std::vector<Value> operands, Attributes attributes = {});
// Converts x to a dtype. Returns an error for a conversion of a floating dtype to another one.
Result<Value> converted(const Call& call, const Value& x, DType dtype);
// Converts integers or truths to integers or truths. Returns an error if the dtype of x is floating.
Result<Value> as_integers(const Call& call, const Value& x, DType dtype);
// Makes x + by (kind "add") or x * by ("mul") of integers.
Value integer_sum(const Call& call, const std::string& kind, const Value& x, double by);
// Converts x to the dtype of the node's result, for ops with an argument `dtype`, which convert
// their operand before they compute.
Result<Value> in_result_dtype(const Call& call, const Value& x);
// Makes a tensor with the dims of `ids` that is 1 where the id is in 0 .. count - 1 and is not
// `left_out`, and 0 elsewhere.
Value kept_ids(const Call& call, std::string name, const Value& ids, int64_t count,
               int64_t left_out, DType dtype);
// Reads an argument of a window (its stride, say): one integer for each spatial dim, at least
// `least`.
Result<std::vector<int64_t>> window_numbers(const Call& call, std::string_view name,
                                            std::vector<int64_t> otherwise, size_t spatial,
                                            int64_t least);
// Makes x in which dim `dim` is replaced by the dims of the ids after their first `shared` ones, with
// the elements that the ids name. The first `shared` dims of the ids are dims of x.
Result<Value> gathered(const Call& call, Value x, size_t dim, Value ids, size_t shared);
// Makes x + by. scaled() makes x * by.
Value shifted(const Call& call, const Value& x, double by);
Value scaled(const Call& call, const Value& x, double by);

// A sum of products of a and b (an einsum). A pair (dim of a, dim of b) in `summed` is one dim that
// is summed; a pair in `shared` is one dim that the result has too. contract() makes the result
// with the dims `out`, where (0, d) is dim d of a and (1, d) is dim d of b.
struct Contraction {
  Value a, b;
  std::vector<std::pair<size_t, size_t>> summed, shared;
  std::optional<Value> bias;  // a bias of the result's last dim
};
Result<Value> contract(const Call& call, std::string name, Contraction product,
                       const std::vector<std::pair<int, size_t>>& out);

// Makes the sum of x over the dims `over`, times `factor`. If `keep`, these dims remain with size
// 1.
Value reduced(const Call& call, std::string name, const Value& x, const std::vector<size_t>& over,
              bool keep, double factor);
// Makes the maximum of x over the dims `over`. If `keep`, these dims remain with size 1.
Value largest(const Call& call, std::string name, const Value& x, const std::vector<size_t>& over,
              bool keep);
// Makes the part of x with the elements begin .. begin + size - 1 of a dim. If `drop`, the size
// must be 1 and the dim is removed.
Result<Value> part_of(const Call& call, const Value& x, size_t dim, int64_t begin, int64_t size,
                      bool drop = false);
// Joins the parts along dim `dim`. All other dims of the parts must be the same dims; concatenated()
// makes them so, and returns an error if that is not possible.
Value joined(const Call& call, std::vector<Value> parts, size_t dim);
Result<Value> concatenated(const Call& call, std::vector<Value> parts, size_t dim);
// Makes the cross entropies of logits and targets: one for each row (kNone), their mean, or their
// sum. The logits have the dims of the targets and, as dim `class_dim`, the classes. If `ignored`
// is set, rows with this target are left out.
enum class Reduction : int64_t { kNone, kMean, kSum };
Result<Value> cross_entropy(const Call& call, Value logits, Value targets, size_t class_dim,
                            Reduction reduction, std::optional<int64_t> ignored);

}  // namespace tessera::pt2
