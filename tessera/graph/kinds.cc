#include "tessera/graph/kinds.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "tessera/base/check.h"
#include "tessera/base/text.h"
#include "tessera/graph/kinds/common.h"
#include "tessera/graph/rows.h"

namespace tessera {
namespace {

using KindTable = std::map<std::string, KindInfo, std::less<>>;

KindTable make_table() {
  KindTable table;
  for (auto family : {kinds::attention_kinds,
                      kinds::batch_norm_kinds,
                      kinds::carried_kinds,
                      kinds::convolution_kinds,
                      kinds::pooling_kinds,
                      kinds::position_kinds,
                      kinds::contraction_kinds,
                      kinds::elementwise_kinds,
                      kinds::indexing_kinds,
                      kinds::loss_kinds,
                      kinds::moe_kinds,
                      kinds::normalisation_kinds,
                      kinds::normalisation_grad_kinds,
                      kinds::normalisation_part_kinds,
                      kinds::optimizer_kinds,
                      kinds::quantise_kinds,
                      kinds::reduction_kinds,
                      kinds::row_update_kinds,
                      kinds::sampling_kinds,
                      kinds::scan_kinds,
                      kinds::shape_kinds,
                      kinds::sparse_kinds}) {
    for (KindInfo& info : family()) {
      TESSERA_CHECK(info.infer && info.flops && info.work, "kind '{}' is incomplete", info.name);
      TESSERA_CHECK(info.outputs == 1 || info.output_names.size() == info.outputs, "kind '{}'",
                    info.name);
      std::string name = info.name;
      const bool added = table.emplace(std::move(name), std::move(info)).second;
      TESSERA_CHECK(added, "a kind is defined twice");
    }
  }
  return table;
}

const KindTable& table() {
  static const KindTable kinds = make_table();
  return kinds;
}

std::string_view type_name(AttributeInfo::Type type) {
  switch (type) {
    case AttributeInfo::Type::kInteger: return "an integer";
    case AttributeInfo::Type::kNumber: return "a number";
    case AttributeInfo::Type::kText: return "a text";
  }
  return "?";
}

// Returns whether the attribute has the type. An integer is also accepted as a number.
bool fits(const Attribute& value, AttributeInfo::Type type) {
  switch (type) {
    case AttributeInfo::Type::kInteger: return std::holds_alternative<int64_t>(value);
    case AttributeInfo::Type::kText: return std::holds_alternative<std::string>(value);
    case AttributeInfo::Type::kNumber:
      return std::holds_alternative<double>(value) || std::holds_alternative<int64_t>(value);
  }
  return false;
}

Status complete_attributes(const KindInfo& info, Attributes& attributes) {
  for (const auto& [name, value] : attributes) {
    const auto known = std::find_if(info.attributes.begin(), info.attributes.end(),
                                    [&](const AttributeInfo& a) { return a.name == name; });
    if (known != info.attributes.end()) continue;
    std::vector<std::string> names;
    names.reserve(info.attributes.size());
    for (const AttributeInfo& a : info.attributes) names.push_back(a.name);
    return invalid_input(
        fmt::format("expected attributes ({}), found '{}'", join(names, ", "), name));
  }
  for (const AttributeInfo& wanted : info.attributes) {
    const auto it = attributes.find(wanted.name);
    if (it == attributes.end()) {
      if (!wanted.otherwise) {
        return invalid_input(fmt::format("expected attribute '{}', found none", wanted.name));
      }
      attributes.emplace(wanted.name, *wanted.otherwise);
    } else if (!fits(it->second, wanted.type)) {
      return invalid_input(
          fmt::format("expected attribute '{}' to be {}", wanted.name, type_name(wanted.type)));
    } else if (const auto* integer = std::get_if<int64_t>(&it->second);
               integer != nullptr && wanted.type == AttributeInfo::Type::kNumber) {
      attributes[wanted.name] = static_cast<double>(*integer);
    }
    if (!wanted.range) continue;
    const double number = std::get<double>(attributes.at(wanted.name));
    if (wanted.range->holds(number)) continue;
    return invalid_input(fmt::format("expected attribute '{}' to be {}, found {}", wanted.name,
                                     wanted.range->words(), number));
  }
  return {};
}

// Returns whether the output is a sum over a dim of the op that it lacks.
bool is_sum(const Annotation& annotation, size_t output) {
  if (annotation.outputs[output].combiner != Combiner::kSum) return false;
  for (size_t dim = 0; dim < annotation.dims.size(); ++dim) {
    if (annotation.reduces(static_cast<int>(dim), output)) return true;
  }
  return false;
}

Status set_sum_dtype(const Graph& graph, const std::vector<TensorId>& inputs,
                     const Attribute& attribute, Inferred& inferred) {
  const auto* name = std::get_if<std::string>(&attribute);
  if (name == nullptr)
    return invalid_input(fmt::format("expected attribute '{}' to be a text", kSumDType));
  TESSERA_TRY(const DType dtype, parse_dtype(*name));
  const auto first = std::find_if(inputs.begin(), inputs.end(), [&](TensorId input) {
    return is_floating(graph.tensor(input).dtype);
  });
  bool any = false;
  for (size_t i = 0; i < inferred.dtypes.size(); ++i) {
    if (!is_sum(inferred.annotation, i)) continue;
    if (!is_floating(dtype) || first == inputs.end() ||
        inferred.dtypes[i] != graph.tensor(*first).dtype) {
      return invalid_input(
          fmt::format("{} = {}: expected floating sums of the first floating operand's dtype, "
                      "found {}",
                      kSumDType, *name, dtype_name(inferred.dtypes[i])));
    }
    inferred.dtypes[i] = dtype;
    any = true;
  }
  if (any) return {};
  return invalid_input(fmt::format(
      "expected an op that sums over a dim, found {} = {} on one that does not", kSumDType, *name));
}

std::string count_text(size_t least, size_t most) {
  if (least == most) return fmt::format("{} input{}", least, least == 1 ? "" : "s");
  if (most == SIZE_MAX) return fmt::format("at least {} input{}", least, least == 1 ? "" : "s");
  return fmt::format("{} to {} inputs", least, most);
}

}  // namespace

const KindInfo& info_of(const Op& op) {
  const KindInfo* info = op.info != nullptr ? op.info : find_kind(op.kind);
  TESSERA_CHECK(info != nullptr, "op '{}' has the unknown kind '{}'", op.path, op.kind);
  return *info;
}

PositionRule position_rule(const Op& op, int op_dim) {
  const KindInfo& info = info_of(op);
  return info.position == nullptr ? PositionRule::kUnknown : info.position(op, op_dim);
}

bool reads_position(const Op& op, int op_dim) {
  const PositionRule rule = position_rule(op, op_dim);
  if (rule != PositionRule::kFree && rule != PositionRule::kSize) return true;
  const int once = info_of(op).added_once;
  return once >= 0 && once < std::ssize(op.inputs) && op.annotation.reduces(op_dim, 0);
}

std::optional<QueryKey> query_key_of(const Op& op) {
  const KindInfo& info = info_of(op);
  return info.query_key == nullptr ? std::nullopt : info.query_key(op);
}

Status check_loopable(const Op& op, int op_dim) {
  const OpDim& dim = op.annotation.dims[static_cast<size_t>(op_dim)];
  if (dim.mark == Mark::kFrozen || dim.window) return invalid_input("cannot be cut");
  switch (position_rule(op, op_dim)) {
    case PositionRule::kFree:
    case PositionRule::kCausal: break;
    case PositionRule::kWithin:
      for (const std::string& item : split_text(op.text("within"), ' ')) {
        if (item.starts_with(dim.name + "=")) {
          return invalid_input("is cut by another loop already");
        }
      }
      break;
    case PositionRule::kUnknown:
      return invalid_input(
          "cannot be cut in time: the kind does not say that it does not depend on the place");
    case PositionRule::kSize:
      return invalid_input("cannot be cut in time: the result depends on the size of the whole");
    case PositionRule::kIndex:
      if (op.number("p") > 0 && !op.text("key").empty()) {
        return invalid_input(
            fmt::format("cannot be cut in time: what its dropout (p = {}) drops is drawn by places "
                        "in the whole",
                        op.number("p")));
      }
      return invalid_input("cannot be cut in time: the result depends on places in the whole");
    case PositionRule::kOrder:
      return invalid_input(
          "cannot be cut in time: places in the whole are compared, as of queries and keys");
  }
  for (const OperandDims& output : op.annotation.outputs) {
    if (!output.contains(op_dim) && output.combiner != Combiner::kSum) {
      const auto o = static_cast<size_t>(&output - &op.annotation.outputs[0]);
      const std::vector<std::string>& names = info_of(op).output_names;
      return invalid_input(fmt::format("cannot be cut in time: '{}{}' is no sum over it", op.path,
                                       names.size() > 1 ? "." + names[o] : ""));
    }
  }
  return {};
}

bool merges_terms(const Op& op) {
  const KindInfo& info = info_of(op);
  return info.merges && info.max_inputs == SIZE_MAX;
}

bool is_sum_of_terms(const Op& op) {
  return merges_terms(op) && info_of(op).merges == Combiner::kSum;
}

bool NumberRange::holds(double number) const {
  return number >= least && number < below && (!flag || number == 0 || number == 1);
}

std::string NumberRange::words() const {
  if (flag) return "0 or 1";
  const bool bounded = below < std::numeric_limits<double>::infinity();
  return fmt::format("a number of at least {}{}", least,
                     bounded ? fmt::format(" and below {}", below) : "");
}

NumberRange optimizer_range(std::string_view name) {
  static constexpr std::array<std::string_view, 3> kShares = {"beta1", "beta2", "momentum"};
  if (std::find(kShares.begin(), kShares.end(), name) != kShares.end())
    return {.least = 0, .below = 1};
  if (name == "nesterov") return {.least = 0, .below = 2, .flag = true};
  return {.least = 0};  // rates, decays, norms, and what is added to a root
}

const KindInfo* find_kind(std::string_view name) {
  // The index makes look-ups fast, because ops look up their kind very often.
  static const std::unordered_map<std::string_view, const KindInfo*> index = [] {
    std::unordered_map<std::string_view, const KindInfo*> by_name;
    for (const auto& [known, info] : table()) by_name.emplace(known, &info);
    return by_name;
  }();
  const auto it = index.find(name);
  return it == index.end() ? nullptr : it->second;
}

std::vector<const KindInfo*> all_kinds() {
  std::vector<const KindInfo*> out;
  for (const auto& [name, info] : table()) out.push_back(&info);
  return out;
}

Result<Inferred> infer_op(const Graph& graph, std::string_view kind,
                          const std::vector<TensorId>& inputs, Attributes& attributes) {
  const KindInfo* info = find_kind(kind);
  if (info == nullptr) {
    std::vector<std::string> names;
    for (const KindInfo* known : all_kinds()) names.push_back(known->name);
    return invalid_input(
        fmt::format("expected an op kind (docs/reference/ops.md), found '{}'; nearest: '{}'", kind,
                    nearest(kind, names)));
  }
  if (inputs.size() < info->min_inputs || inputs.size() > info->max_inputs) {
    return invalid_input(fmt::format(
        "expected {}, found {}", count_text(info->min_inputs, info->max_inputs), inputs.size()));
  }
  for (const TensorId input : inputs) {
    if (!input.valid() || input.index() >= graph.tensors().size()) {
      return invalid_input("an input is no tensor of the graph");
    }
  }
  std::optional<Attribute> sum;
  if (const auto it = attributes.find(kSumDType); it != attributes.end()) sum = it->second;
  if (sum) attributes.erase(std::string(kSumDType));
  TESSERA_TRY_VOID(complete_attributes(*info, attributes));
  TESSERA_TRY(Inferred inferred, info->infer(graph, inputs, attributes));
  if (sum) {
    TESSERA_TRY_VOID(set_sum_dtype(graph, inputs, *sum, inferred));
    attributes.emplace(kSumDType, *sum);
  }
  return inferred;
}

std::optional<DType> sum_dtype(const Op& op) {
  const auto found = op.attributes.find(kSumDType);
  if (found == op.attributes.end()) return std::nullopt;
  const auto dtype = parse_dtype(std::get<std::string>(found->second));
  return dtype ? std::optional(*dtype) : std::nullopt;
}

bool has_sum_dtype(const Op& op, size_t output) {
  return sum_dtype(op).has_value() && is_sum(op.annotation, output);
}

bool widen_sum(Graph& graph, TensorId tensor, DType dtype, const std::vector<TensorId>& also) {
  const OpId producer = graph.tensor(tensor).producer;
  if (!producer.valid()) return false;
  Op& op = graph.op(producer);
  for (size_t i = 0; i < op.outputs.size(); ++i) {
    const TensorId output = op.outputs[i];
    const bool meant =
        output == tensor || std::find(also.begin(), also.end(), output) != also.end();
    if (is_sum(op.annotation, i) != meant && (output == tensor || !meant)) return false;
  }
  Attributes attributes = op.attributes;
  attributes[std::string(kSumDType)] = std::string(dtype_name(dtype));
  const auto inferred = infer_op(graph, op.kind, op.inputs, attributes);
  if (!inferred) return false;
  op.attributes = std::move(attributes);
  for (size_t i = 0; i < op.outputs.size(); ++i)
    graph.tensor(op.outputs[i]).dtype = inferred->dtypes[i];
  return true;
}

bool looks_up_rows(const Op& op) { return info_of(op).bytes == ByteRule::kTable; }

bool touches_rows(const Op& op, size_t input) {
  if (looks_up_rows(op)) return input == 1;
  return info_of(op).bytes == ByteRule::kRows && input < tables_of_rows(op) &&
         !reads_sizes_alone(op, input);
}

bool is_linear(const Op& op) {
  if (!info_of(op).linear) return false;
  for (const OperandDims& input : op.annotation.inputs) {
    if (input.dims.size() != op.annotation.outputs[0].dims.size()) return false;
  }
  return true;
}

bool accumulates(const Op& op, size_t output) {
  const KindInfo& info = info_of(op);
  return info.accumulates && output >= info.first_accumulating;
}

int64_t op_flops(const Op& op) { return info_of(op).flops(op); }

}  // namespace tessera
