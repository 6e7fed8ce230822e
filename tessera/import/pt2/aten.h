// The table of the ops of an exported program. A row lowers a node: it unifies dims, leaves a step
// that adds ops, and sets the node's outputs; for nodes whose operands are all known, fold()
// computes the result instead.
//
// To add an op, add a row to the table of the file that has related ops, and a case to
// tests/import.
#pragma once

#include <map>
#include <string_view>

#include "tessera/import/pt2/lower.h"

namespace tessera::pt2 {

using Row = Status (*)(const Call&);
using Rows = std::map<std::string_view, Row>;  // by name: "linear" of aten.linear.default

Rows pointwise_rows();
Rows shape_rows();
Rows product_rows();
Rows attention_rows();
Rows norm_rows();
Rows loss_rows();

// Returns the row of an op, or null if there is no such op.
Row find_row(std::string_view name);

// Returns the value of a node whose tensor operands are all known; nothing if it cannot be
// computed.
std::optional<Constant> fold(const Call& call, std::string_view name);
// Returns whether fold() can compute the op.
bool folds_op(std::string_view name);
// Returns the outputs of a node that cuts a known tensor into parts; none for other nodes.
std::vector<Constant> fold_parts(const Call& call, std::string_view name);

// ---- for the rows
// Gives the operands of an element-wise op their common dims, by unification from the last dim on.
Result<std::vector<Vars>> common_dims(const Call& call, std::vector<Value>& operands);
// The tensors of such operands in the second pass: one of them has all dims, the others have their
// dims in the same order.
struct Operands {
  std::vector<TensorId> ids;
  Vars dims;
};
Operands common_operands(Emitter& emitter, const std::vector<Value>& operands, const Vars& flat);
// Adds a node of one kind over operands of equal or broadcast dims.
Result<Value> pointwise(const Call& call, std::string name, std::string kind,
                        std::vector<Value> operands, Attributes attributes = {});
// Converts x to a floating dtype. Returns an error if x has none.
Result<Value> converted(const Call& call, const Value& x, DType dtype);
// Converts x to the dtype of the node's result: ops with an argument `dtype` convert their operand
// first.
Result<Value> in_result_dtype(const Call& call, const Value& x);
// Makes 1 where an id is one of 0 .. count - 1 and not `left_out`, else 0.
Value kept_ids(const Call& call, std::string name, const Value& ids, int64_t count,
               int64_t left_out, DType dtype);
// Reads integers of a window, one for each spatial dim, each at least `least`.
Result<std::vector<int64_t>> window_numbers(const Call& call, std::string_view name,
                                            std::vector<int64_t> otherwise, size_t spatial,
                                            int64_t least);
// Makes x plus a number and, below, x times a number.
Value shifted(const Call& call, const Value& x, double by);
Value scaled(const Call& call, const Value& x, double by);

// The sum of products over the pairs of dims `summed`; both operands have the pairs `shared`. The
// result has the dims `out`, of a (first) or of b.
struct Contraction {
  Value a, b;
  std::vector<std::pair<size_t, size_t>> summed, shared;
  std::optional<Value> bias;  // has the last dim
};
Result<Value> contract(const Call& call, std::string name, Contraction product,
                       const std::vector<std::pair<int, size_t>>& out);

// Makes a sum over dims times a factor; the dims remain with size 1 if `keep`.
Value reduced(const Call& call, std::string name, const Value& x, const std::vector<size_t>& over,
              bool keep, double factor);
// Makes the largest element over dims, which remain with size 1 if `keep`.
Value largest(const Call& call, std::string name, const Value& x, const std::vector<size_t>& over,
              bool keep);
// Makes the part of a dim from `begin` on; with `drop` a dim of one element is removed.
Result<Value> part_of(const Call& call, const Value& x, size_t dim, int64_t begin, int64_t size,
                      bool drop = false);
// Joins the parts along a dim; all their other dims are equal.
Value joined(const Call& call, std::vector<Value> parts, size_t dim);
// Makes the mean (or sum, or value of each row) of the cross entropies of logits and targets, whose
// rows are equal. Rows whose target is `ignored` do not count, if there is such a target.
enum class Reduction : int64_t { kNone, kMean, kSum };
Result<Value> cross_entropy(const Call& call, Value logits, Value targets, size_t class_dim,
                            Reduction reduction, std::optional<int64_t> ignored);

}  // namespace tessera::pt2
