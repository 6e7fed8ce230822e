// einsum, and sums of rows of tables: embedding, embedding_bag and their gradients.
#include <fmt/format.h>

#include <algorithm>

#include "tessera/graph/kinds/common.h"
#include "tessera/graph/pieces.h"

namespace tessera::kinds {
namespace {

// ---- einsum
// --------------------------------------------------------------------------------------
Names operand_names(const Annotation& annotation, const OperandDims& operand) {
  Names names;
  for (const DimGroup& group : operand.dims)
    names.push_back(annotation.dims[static_cast<size_t>(group[0])].name);
  return names;
}

Status check_einsum_spec(const Annotation& spec) {
  auto plain = [](const OperandDims& operand) {
    return operand.combiner == Combiner::kSum &&
           std::all_of(operand.dims.begin(), operand.dims.end(),
                       [](const DimGroup& g) { return g.size() == 1; });
  };
  const bool simple = std::all_of(spec.inputs.begin(), spec.inputs.end(), plain) &&
                      std::all_of(spec.outputs.begin(), spec.outputs.end(), plain) &&
                      std::none_of(spec.dims.begin(), spec.dims.end(), [](const OpDim& dim) {
                        return dim.window || dim.causal_of >= 0 || dim.literal();
                      });
  if (!simple) {
    return invalid_input(
        "expected a spec of named dims only (no bracket, number, window, causal pair or combiner)");
  }
  if (spec.outputs.size() != 1) {
    return invalid_input(
        fmt::format("expected a spec with one output, found {}", spec.outputs.size()));
  }
  for (size_t i = 0; i < spec.dims.size(); ++i) {
    const int dim = static_cast<int>(i);
    const size_t factors = std::min<size_t>(spec.inputs.size(), 2);
    const bool in_factor =
        std::any_of(spec.inputs.begin(), spec.inputs.begin() + static_cast<std::ptrdiff_t>(factors),
                    [dim](const OperandDims& operand) { return operand.contains(dim); });
    if (!in_factor) {
      return invalid_input(fmt::format(
          "expected dim '{}' of the spec in the first or second operand", spec.dims[i].name));
    }
    if (spec.inputs.size() == 3 && spec.inputs[2].contains(dim) && !spec.outputs[0].contains(dim)) {
      return invalid_input(fmt::format("expected the bias dims among the output dims, found '{}'",
                                       spec.dims[i].name));
    }
  }
  return {};
}

Result<Inferred> infer_einsum(const Operands& x) {
  TESSERA_TRY_VOID(expect_equal_dtypes(x));
  TESSERA_TRY(Annotation spec, parse_annotation(x.text("spec")));
  if (spec.inputs.size() != x.count()) {
    return invalid_input(
        fmt::format("the spec has {} operands, found {} inputs", spec.inputs.size(), x.count()));
  }
  TESSERA_TRY_VOID(check_einsum_spec(spec));
  // The output's sizes follow from the inputs, so the sizes of the inputs are bound first.
  for (size_t i = 0; i < x.count(); ++i) {
    const Tensor& input = x[i];
    if (spec.inputs[i].dims.size() != input.dims.size()) {
      return invalid_input(fmt::format("expected input {} with dims ({}) as in the spec, found {}",
                                       i, spell(operand_names(spec, spec.inputs[i])),
                                       describe(input)));
    }
    for (size_t d = 0; d < input.dims.size(); ++d) {
      OpDim& dim = spec.dims.own()[static_cast<size_t>(spec.inputs[i].dims[d][0])];
      if (dim.size >= 0 && dim.size != input.dims[d].size) {
        return invalid_input(fmt::format("expected dim '{}' of size {}, found {} in input {} {}",
                                         dim.name, dim.size, input.dims[d].size, i,
                                         describe(input)));
      }
      dim.size = input.dims[d].size;
    }
  }
  std::vector<Dim> output;
  for (const DimGroup& group : spec.outputs[0].dims) {
    const OpDim& dim = spec.dims[static_cast<size_t>(group[0])];
    output.push_back({dim.name, dim.size});
  }
  return conclude(x, x.text("spec"), {output}, {x[0].dtype});
}

int64_t einsum_flops(const Op& op) {
  const int64_t product = iteration_points(op);
  if (op.inputs.size() == 1) return product;
  // A multiplication and an addition. The addition of the bias is not counted, as is usual.
  return 2 * product;
}

Attributes without_bias(const Op& op) {
  const std::string spec = op.text("spec");
  const size_t arrow = spec.find("->");
  return {{"spec", spec.substr(0, spec.rfind(',', arrow)) + " " + spec.substr(arrow)}};
}

// Renames dims of `id` so that it has the dims of `target`, in order; the sizes are the same.
// If another dim of `id` has a wanted name, that dim is renamed first. If names only change
// places, one dim gets a spare name for a while. `target` is a copy, because adding ops moves
// tensors in memory.
TensorId rename_to(GraphBuilder& builder, const std::string& path, TensorId id,
                   std::vector<Dim> target) {
  while (builder.ok()) {
    const std::vector<Dim> dims = builder.tensor(id).dims;
    size_t chosen = target.size(), blocked = target.size();
    for (size_t i = 0; i < std::min(target.size(), dims.size()) && chosen == target.size(); ++i) {
      if (dims[i].name == target[i].name) continue;
      (find_dim(dims, target[i].name) < 0 ? chosen : blocked) = i;
    }
    const bool spare = chosen == target.size();
    if (spare && blocked == target.size()) return id;
    const std::string from = dims[spare ? blocked : chosen].name;
    const std::string to = spare ? from + ".spare" : target[chosen].name;
    id = builder.op1(fmt::format("{}.rename.{}", path, to), "rename", {id},
                     {{"from", from}, {"to", to}});
  }
  return id;
}

class EinsumGradient {
 public:
  EinsumGradient(GraphBuilder& builder, const Op& op, TensorId dy)
      : builder_(builder), op_(op), dy_(dy) {
    for (const OperandDims& operand : op.annotation.inputs)
      inputs_.push_back(operand_names(op.annotation, operand));
    output_ = operand_names(op.annotation, op.annotation.outputs[0]);
  }

  // Makes dA[m,k] = dC[m,n] B[k,n] or dB[k,n] = A[m,k] dC[m,n]. The dims keep the names of the
  // forward op, so that splits are inherited by name.
  TensorId factor(size_t which) {
    const std::string path = op_.path + (which == 0 ? ".dx" : ".dw");
    std::vector<Names> names = {output_};
    std::vector<TensorId> operands = {dy_};
    if (op_.inputs.size() > 1) {
      const size_t other = 1 - which;
      const auto position = static_cast<std::ptrdiff_t>(other == 0 ? 0 : 1);
      names.insert(names.begin() + position, inputs_[other]);
      operands.insert(operands.begin() + position, op_.inputs[other]);
    }
    return contract(path, names, operands, which);
  }

  TensorId bias() {
    const std::string path = op_.path + ".db";
    const Names& wanted = inputs_[2];
    Names kept;
    std::string missing;
    for (const std::string& name : output_) {
      if (std::find(wanted.begin(), wanted.end(), name) != wanted.end()) {
        kept.push_back(name);
      } else {
        missing += (missing.empty() ? "" : " ") + name;
      }
    }
    if (kept != wanted) return contract(path, {output_}, {dy_}, 2);
    const TensorId sum =
        missing.empty() ? dy_ : builder_.op1(path, "reduce_sum", {dy_}, {{"dims", missing}});
    return rename_to(builder_, path, sum, builder_.tensor(op_.inputs[2]).dims);
  }

 private:
  TensorId contract(const std::string& path, const std::vector<Names>& names,
                    const std::vector<TensorId>& operands, size_t target) {
    // Dims of the target that an operand has; the result is broadcast to the other dims.
    Names present;
    for (const std::string& name : inputs_[target]) {
      const bool found = std::any_of(names.begin(), names.end(), [&](const Names& operand) {
        return std::find(operand.begin(), operand.end(), name) != operand.end();
      });
      if (found) present.push_back(name);
    }
    std::string spec;
    for (const Names& operand : names) spec += (spec.empty() ? "" : ", ") + spell_frozen(operand);
    TensorId id =
        builder_.op1(path, "einsum", operands, {{"spec", spec + " -> " + spell_frozen(present)}});
    if (present != inputs_[target]) {
      std::vector<Dim> full;
      for (const std::string& name : inputs_[target]) {
        full.push_back(
            {name, op_.annotation.dims[static_cast<size_t>(op_.annotation.find(name))].size});
      }
      id = builder_.op1(path + ".broadcast", "broadcast_to", {id}, {{"dims", dims_text(full)}});
    }
    return rename_to(builder_, path, id, builder_.tensor(op_.inputs[target]).dims);
  }

  // Spells the names. A dim that is frozen in the forward op is marked as frozen.
  std::string spell_frozen(const Names& names) const {
    Names marked = names;
    for (std::string& name : marked) {
      const OpDim& dim = op_.annotation.dims[static_cast<size_t>(op_.annotation.find(name))];
      if (dim.mark == Mark::kFrozen) name += '^';
    }
    return spell(marked);
  }

  GraphBuilder& builder_;
  const Op& op_;
  TensorId dy_;
  std::vector<Names> inputs_;
  Names output_;
};

InputGradients differentiate_einsum(GraphBuilder& builder, const Op& op, const OutputGradients& dy,
                                    const std::vector<bool>& wanted) {
  InputGradients out(op.inputs.size());
  EinsumGradient gradient(builder, op, dy[0]);
  for (size_t i = 0; i < std::min<size_t>(op.inputs.size(), 2); ++i) {
    if (wanted[i]) out[i] = gradient.factor(i);
  }
  if (op.inputs.size() == 3 && wanted[2]) out[2] = gradient.bias();
  return out;
}

// ---- embedding
// -----------------------------------------------------------------------------------
// Checks a table. `within` says which rows of a larger table it has. Ids name rows of the
// larger table.
Status expect_table(const Tensor& table, const char* dims, std::string_view within) {
  if (table.dims.size() == 2 && is_floating(table.dtype))
    return check_rows_within(within, table.dims[0]);
  return invalid_input(
      fmt::format("expected a floating table with 2 dims ({}), found {}", dims, describe(table)));
}

Result<Inferred> infer_embedding(const Operands& x) {
  TESSERA_TRY_VOID(expect_dtype(x[0], "ids", DType::kInt64));
  TESSERA_TRY_VOID(expect_table(x[1], "vocab, hidden", x.text("within")));
  std::vector<Dim> output = x[0].dims;
  output.push_back(x[1].dims[1]);
  return conclude(x, fmt::format("{}, {} -> {}", spell(x[0].dims), spell(x[1].dims), spell(output)),
                  {output}, {x[1].dtype});
}

// Returns kWithin for the rows, else kFree. An id is a row number of the whole table. A loop over
// the rows tells each look-up, by attribute `within`, which rows it has.
PositionRule place_in_embedding(const Op& op, int dim) {
  return op.annotation.inputs[1].dims[0] == DimGroup{dim} ? PositionRule::kWithin
                                                          : PositionRule::kFree;
}
PositionRule place_in_table(const Op& op, int dim) {
  return op.annotation.inputs[1].dims[0] == DimGroup{dim} ? PositionRule::kIndex
                                                          : PositionRule::kFree;
}
PositionRule place_in_embedding_grad(const Op& op, int dim) {
  return op.annotation.outputs[0].dims[0] == DimGroup{dim} ? PositionRule::kIndex
                                                           : PositionRule::kFree;
}

InputGradients differentiate_embedding(GraphBuilder& builder, const Op& op,
                                       const OutputGradients& dy, const std::vector<bool>& wanted) {
  InputGradients out(2);
  if (!wanted[1]) return out;
  const Dim vocab = builder.tensor(op.inputs[1]).dims.at(0);
  out[1] = builder.op1(
      op.path + ".dtable", "embedding_grad", {op.inputs[0], dy[0]},
      {{"vocab", vocab.size}, {"vocab_name", vocab.name}, {"within", op.text("within")}});
  return out;
}

Result<Inferred> infer_embedding_grad(const Operands& x) {
  TESSERA_TRY_VOID(expect_dtype(x[0], "ids", DType::kInt64));
  std::vector<Dim> lead = x[1].dims;
  if (!lead.empty()) lead.pop_back();
  if (x[1].dims.empty() || lead != x[0].dims || !is_floating(x[1].dtype)) {
    return invalid_input(
        fmt::format("expected a floating dy with the dims of ids and one more, found {} for {}",
                    describe(x[1]), describe(x[0])));
  }
  const std::vector<Dim> output = {{x.text("vocab_name"), x.integer("vocab")}, x[1].dims.back()};
  TESSERA_TRY_VOID(check_rows_within(x.text("within"), output[0]));
  return conclude(x, fmt::format("{}, {} -> {}", spell(x[0].dims), spell(x[1].dims), spell(output)),
                  {output}, {x[1].dtype});
}

// Counts one addition for each element of dy.
int64_t embedding_grad_flops(const Op& op) {
  const int vocab = op.annotation.outputs[0].dims[0][0];
  return iteration_points(op) / op.annotation.dims[static_cast<size_t>(vocab)].size;
}

// ---- embedding_bag
// Spells the operands. The last dim of the ids is the bag. It is frozen for a mean, which divides
// by the number of ids in the whole bag. Weights have the dims of the ids and the table's dtype.
Result<std::string> spell_bags(const Operands& x) {
  TESSERA_TRY_VOID(expect_dtype(x[0], "ids", DType::kInt64));
  if (x[0].dims.empty()) {
    return invalid_input(fmt::format(
        "expected ids with at least one dim, that of the bag, found {}", describe(x[0])));
  }
  const std::string& mode = x.text("mode");
  if (mode != "sum" && mode != "mean")
    return invalid_input(fmt::format("expected mode \"sum\" or \"mean\", found \"{}\"", mode));
  if (mode == "mean" && x.count() > 2)
    return invalid_input("expected mode \"sum\" of a bag with weights, found \"mean\"");
  return spell(x[0].dims) + (mode == "mean" ? "^" : "+");
}

Status expect_weights(const Tensor& weights, const Tensor& ids, DType dtype) {
  TESSERA_TRY_VOID(expect_dims(weights, "weights", ids.dims));
  return expect_dtype(weights, "weights", dtype);
}

std::vector<Dim> without_bag(const Tensor& ids) {
  std::vector<Dim> lead = ids.dims;
  lead.pop_back();
  return lead;
}

Status expect_bag_gradient(const Tensor& dy, const Tensor& ids) {
  std::vector<Dim> lead = dy.dims;
  if (!lead.empty()) lead.pop_back();
  if (!dy.dims.empty() && lead == without_bag(ids) && is_floating(dy.dtype)) return {};
  return invalid_input(fmt::format(
      "expected a floating dy with the dims of ids, but the bag's, and one more, found {} for {}",
      describe(dy), describe(ids)));
}

Result<Inferred> infer_embedding_bag(const Operands& x) {
  TESSERA_TRY(const std::string bags, spell_bags(x));
  TESSERA_TRY_VOID(expect_table(x[1], "rows, width", x.text("within")));
  std::string inputs = bags + ", " + spell(x[1].dims);
  if (x.count() > 2) {
    TESSERA_TRY_VOID(expect_weights(x[2], x[0], x[1].dtype));
    inputs += ", " + spell(x[2].dims);
  }
  std::vector<Dim> output = without_bag(x[0]);
  output.push_back(x[1].dims[1]);
  return conclude(x, inputs + " -> " + spell(output), {output}, {x[1].dtype});
}

InputGradients differentiate_embedding_bag(GraphBuilder& builder, const Op& op,
                                           const OutputGradients& dy,
                                           const std::vector<bool>& wanted) {
  InputGradients out(op.inputs.size());
  if (wanted[1]) {
    const Dim rows = builder.tensor(op.inputs[1]).dims.at(0);
    std::vector<TensorId> inputs = {op.inputs[0], dy[0]};
    if (op.inputs.size() > 2) inputs.push_back(op.inputs[2]);
    out[1] = builder.op1(op.path + ".dtable", "embedding_bag_grad", inputs,
                         {{"rows", rows.size},
                          {"rows_name", rows.name},
                          {"mode", op.text("mode")},
                          {"within", op.text("within")}});
  }
  if (op.inputs.size() > 2 && wanted[2]) {
    out[2] = builder.op1(op.path + ".dweights", "embedding_bag_weights_grad",
                         {op.inputs[0], op.inputs[1], dy[0]}, {{"within", op.text("within")}});
  }
  return out;
}

Result<Inferred> infer_embedding_bag_grad(const Operands& x) {
  TESSERA_TRY(const std::string bags, spell_bags(x));
  TESSERA_TRY_VOID(expect_bag_gradient(x[1], x[0]));
  std::string inputs = bags + ", " + spell(x[1].dims);
  if (x.count() > 2) {
    TESSERA_TRY_VOID(expect_weights(x[2], x[0], x[1].dtype));
    inputs += ", " + spell(x[2].dims);
  }
  const std::vector<Dim> output = {{x.text("rows_name"), x.integer("rows")}, x[1].dims.back()};
  TESSERA_TRY_VOID(check_rows_within(x.text("within"), output[0]));
  return conclude(x, inputs + " -> " + spell(output), {output}, {x[1].dtype});
}

// (ids, table, dy) -> dweights: for each id the inner product of its row and dy. A piece of the
// rows or of the width makes a part of dweights.
Result<Inferred> infer_embedding_bag_weights_grad(const Operands& x) {
  TESSERA_TRY_VOID(expect_dtype(x[0], "ids", DType::kInt64));
  TESSERA_TRY_VOID(expect_table(x[1], "rows, width", x.text("within")));
  if (x[0].dims.empty() || x[2].dims.empty() || x[2].dims.back() != x[1].dims[1]) {
    return invalid_input(fmt::format("expected dy of rows of {}, found {} for {}", describe(x[1]),
                                     describe(x[2]), describe(x[0])));
  }
  TESSERA_TRY_VOID(expect_bag_gradient(x[2], x[0]));
  return conclude(x,
                  fmt::format("{}, {}, {} -> {}", spell(x[0].dims), spell(x[1].dims),
                              spell(x[2].dims), spell(x[0].dims)),
                  {x[0].dims}, {x[2].dtype});
}

// Counts one addition for each id and each element of its row.
int64_t rows_added(const Op& op, const DimGroup& rows) {
  return iteration_points(op) / op.annotation.dims[static_cast<size_t>(rows[0])].size;
}
int64_t embedding_bag_flops(const Op& op) {
  return rows_added(op, op.annotation.inputs[1].dims[0]) * (op.inputs.size() > 2 ? 2 : 1);
}
int64_t embedding_bag_weights_grad_flops(const Op& op) {
  return 2 * rows_added(op, op.annotation.inputs[1].dims[0]);
}

}  // namespace

std::vector<KindInfo> contraction_kinds() {
  return {
      {.name = "einsum",
       .summary = "product of one or two tensors summed over dims, with an optional bias",
       .min_inputs = 1,
       .max_inputs = 3,
       .attributes = {text_attribute("spec")},
       .infer = infer_by(infer_einsum),
       .differentiate = differentiate_einsum,
       .flops = einsum_flops,
       .work = WorkClass::kMatmul,
       .family = FamilyRule::kProduct,
       .position = position_free,
       .added_once = 2,
       .without_added = without_bias,
       .accumulates = true},
      {.name = "embedding",
       .summary = "rows of a table by integer ids",
       .min_inputs = 2,
       .max_inputs = 2,
       .attributes = {text_attribute("within", "")},
       .infer = infer_by(infer_embedding),
       .differentiate = differentiate_embedding,
       .flops = no_flops,
       .work = WorkClass::kLookup,
       .bytes = ByteRule::kTable,
       .family = FamilyRule::kTable,
       .position = place_in_embedding,
       .accumulates = true},
      {.name = "embedding_grad",
       .summary = "gradient of the table: rows of dy added up by id",
       .min_inputs = 2,
       .max_inputs = 2,
       .attributes = {integer_attribute("vocab"), text_attribute("vocab_name"),
                      text_attribute("within", "")},
       .infer = infer_by(infer_embedding_grad),
       .flops = embedding_grad_flops,
       .work = WorkClass::kLookup,
       .bytes = ByteRule::kTableGrad,
       .family = FamilyRule::kTable,
       .gradient = true,
       .position = place_in_embedding_grad,
       .accumulates = true},
      {.name = "embedding_bag",
       .summary = "sums, weighted sums or means of rows of a table, whose ids stand in bags padded "
                  "with -1",
       .min_inputs = 2,
       .max_inputs = 3,
       .attributes = {text_attribute("mode", "sum"), text_attribute("within", "")},
       .infer = infer_by(infer_embedding_bag),
       .differentiate = differentiate_embedding_bag,
       .flops = embedding_bag_flops,
       .work = WorkClass::kLookup,
       .bytes = ByteRule::kTable,
       .family = FamilyRule::kTable,
       .position = place_in_embedding,
       .in_dtype_of_table = true,
       .accumulates = true},
      {.name = "embedding_bag_weights_grad",
       .summary =
           "gradient of the weights of bags: inner products of dy with the rows of their ids",
       .min_inputs = 3,
       .max_inputs = 3,
       .attributes = {text_attribute("within", "")},
       .infer = infer_by(infer_embedding_bag_weights_grad),
       .flops = embedding_bag_weights_grad_flops,
       .work = WorkClass::kLookup,
       .bytes = ByteRule::kTable,
       .family = FamilyRule::kTable,
       .gradient = true,
       .position = place_in_table,
       .accumulates = true},
      {.name = "embedding_bag_grad",
       .summary = "gradient of the table: rows of dy added up by the ids of their bags",
       .min_inputs = 2,
       .max_inputs = 3,
       .attributes = {integer_attribute("rows"), text_attribute("rows_name"),
                      text_attribute("mode", "sum"), text_attribute("within", "")},
       .infer = infer_by(infer_embedding_bag_grad),
       .flops = embedding_grad_flops,
       .work = WorkClass::kLookup,
       .bytes = ByteRule::kTableGrad,
       .family = FamilyRule::kTable,
       .gradient = true,
       .position = place_in_embedding_grad,
       .accumulates = true},
  };
}

}  // namespace tessera::kinds
