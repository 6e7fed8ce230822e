// Shared by the files of the op table: functions that read operands and attributes in `infer`, that
// compose annotations from dim names, and that count flops. Private to tessera/graph.
//
// An infer function follows the line of its kind in docs/reference/ops.md: it checks the operands,
// spells the annotation, and lists the output dims and dtypes. Error messages say what was expected
// and what was found. The callers add which op it was.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/graph/builder.h"
#include "tessera/graph/kinds.h"

namespace tessera::kinds {

// Returns the kinds of one family, for each of these functions. kinds.cc joins the families to the
// op table.
std::vector<KindInfo> attention_kinds();
std::vector<KindInfo> batch_norm_kinds();
std::vector<KindInfo> carried_kinds();
std::vector<KindInfo> contraction_kinds();
std::vector<KindInfo> convolution_kinds();
std::vector<KindInfo> elementwise_kinds();
std::vector<KindInfo> indexing_kinds();
std::vector<KindInfo> loss_kinds();
std::vector<KindInfo> moe_kinds();
std::vector<KindInfo> normalisation_kinds();
std::vector<KindInfo> normalisation_grad_kinds();
std::vector<KindInfo> normalisation_part_kinds();  // kinds that only expansions use
std::vector<KindInfo> optimizer_kinds();
std::vector<KindInfo> pooling_kinds();
std::vector<KindInfo> position_kinds();
std::vector<KindInfo> quantise_kinds();
std::vector<KindInfo> reduction_kinds();
std::vector<KindInfo> row_update_kinds();
std::vector<KindInfo> sampling_kinds();
std::vector<KindInfo> scan_kinds();
std::vector<KindInfo> shape_kinds();
std::vector<KindInfo> sparse_kinds();

// The operands of a call, as an infer function gets them. Attributes are complete and of the
// right type.
struct Operands {
  const Graph& graph;
  const std::vector<TensorId>& inputs;
  const Attributes& attributes;

  size_t count() const { return inputs.size(); }
  const Tensor& operator[](size_t i) const { return graph.tensor(inputs[i]); }
  int64_t integer(std::string_view name) const;
  double number(std::string_view name) const;
  const std::string& text(std::string_view name) const;
};

using InferFunction = Result<Inferred> (*)(const Operands&);
std::function<Result<Inferred>(const Graph&, const std::vector<TensorId>&, const Attributes&)>
infer_by(InferFunction infer);

AttributeInfo integer_attribute(std::string name);
AttributeInfo integer_attribute(std::string name, int64_t otherwise);
AttributeInfo number_attribute(std::string name);
AttributeInfo number_attribute(std::string name, double otherwise);
// Describes an attribute of an optimizer: a number, in the range that belongs to its
// name (optimizer_range).
AttributeInfo optimizer_attribute(std::string name, double otherwise);
AttributeInfo text_attribute(std::string name);
AttributeInfo text_attribute(std::string name, std::string otherwise);

// Dim names. `spell` returns their text in an annotation: "batch seq", "()" if there are none.
using Names = std::vector<std::string>;
Names names_of(const std::vector<Dim>& dims);
std::string spell(const Names& names);
// Spells the names and one more at the end: spell(lead, "hidden^").
std::string spell(const Names& names, std::string_view last);
std::string spell(const std::vector<Dim>& dims);
int find_dim(const std::vector<Dim>& dims, std::string_view name);  // position or -1
std::vector<Dim> without_last(const std::vector<Dim>& dims);
// Returns whether the names of `part` occur in `whole` in the same order.
bool is_subsequence(const std::vector<Dim>& part, const std::vector<Dim>& whole);
std::vector<std::string> words(std::string_view text);       // separated by blanks
Result<std::vector<Dim>> parse_dims(std::string_view text);  // "a=2 b=8"
std::string dims_text(const std::vector<Dim>& dims);         // the inverse of parse_dims

// Parses the annotation, and binds it to the operands' shapes and the given outputs.
Result<Inferred> conclude(const Operands& operands, const std::string& annotation,
                          std::vector<std::vector<Dim>> outputs, std::vector<DType> dtypes);
// Infers a result with the dims and dtype of the single operand, if each element of the result
// needs all elements along the dim that attribute `dim` names. That dim is frozen. Returns an error
// if the operand lacks the dim.
Result<Inferred> infer_along_whole_dim(const Operands& operands);

// `least` dims or more
Status expect_rank(const Tensor& tensor, std::string_view what, size_t least);
Status expect_dims(const Tensor& tensor, std::string_view what, const std::vector<Dim>& dims);
// Checks all inputs, or the first `count` inputs.
Status expect_floating(const Operands& operands, size_t count = SIZE_MAX);
Status expect_dtype(const Tensor& tensor, std::string_view what, DType dtype);
// Checks that the tensor has the dims and dtype of x.
Status expect_like(const Tensor& tensor, std::string_view what, const Tensor& x);
Status expect_equal_dtypes(const Operands& operands, size_t count = SIZE_MAX);  // floating, too
// Checks that all inputs have one dtype, which is floating or int64.
Status expect_numbers(const Operands& operands);

// Returns the dtype of means, log-sum-exps and norms: float64 for float64, else float32.
DType statistics_dtype(DType dtype);

int64_t iteration_points(const Op& op);  // the product of all op dims
// Returns the product of all op dims, with windows counted instead of the elements under them.
int64_t window_points(const Op& op);
std::function<int64_t(const Op&)> flops_per_point(int64_t flops);
inline int64_t no_flops(const Op&) { return 0; }  // for kinds that only move data

// Returns kFree. It is the position rule of kinds whose work on an element does not depend on the
// element's position.
inline PositionRule position_free(const Op&, int) { return PositionRule::kFree; }

// Makes a gradient with the dims of `target` from `gradient`, by a sum over the dims that `target`
// lacks. `path` is the path of the op reduce_sum.
TensorId sum_to(GraphBuilder& builder, const std::string& path, TensorId gradient,
                const std::vector<Dim>& target);

}  // namespace tessera::kinds
