#include "tessera/graph/kinds/common.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "tessera/base/check.h"
#include "tessera/base/text.h"
#include "tessera/graph/windows.h"

namespace tessera::kinds {
namespace {

const Attribute& attribute(const Operands& operands, std::string_view name) {
  const auto it = operands.attributes.find(name);
  TESSERA_CHECK(it != operands.attributes.end(), "attribute '{}'", name);
  return it->second;
}

}  // namespace

int64_t Operands::integer(std::string_view name) const {
  return std::get<int64_t>(attribute(*this, name));
}
double Operands::number(std::string_view name) const {
  return std::get<double>(attribute(*this, name));
}
const std::string& Operands::text(std::string_view name) const {
  return std::get<std::string>(attribute(*this, name));
}

std::function<Result<Inferred>(const Graph&, const std::vector<TensorId>&, const Attributes&)>
infer_by(InferFunction infer) {
  return [infer](const Graph& graph, const std::vector<TensorId>& inputs,
                 const Attributes& attributes) {
    return infer(Operands{graph, inputs, attributes});
  };
}

AttributeInfo integer_attribute(std::string name) {
  return {std::move(name), AttributeInfo::Type::kInteger, std::nullopt};
}
AttributeInfo integer_attribute(std::string name, int64_t otherwise) {
  return {std::move(name), AttributeInfo::Type::kInteger, otherwise};
}
AttributeInfo number_attribute(std::string name) {
  return {std::move(name), AttributeInfo::Type::kNumber, std::nullopt};
}
AttributeInfo number_attribute(std::string name, double otherwise) {
  return {std::move(name), AttributeInfo::Type::kNumber, otherwise};
}
AttributeInfo optimizer_attribute(std::string name, double otherwise) {
  AttributeInfo info = number_attribute(std::move(name), otherwise);
  info.range = optimizer_range(info.name);
  return info;
}
AttributeInfo text_attribute(std::string name) {
  return {std::move(name), AttributeInfo::Type::kText, std::nullopt};
}
AttributeInfo text_attribute(std::string name, std::string otherwise) {
  return {std::move(name), AttributeInfo::Type::kText, Attribute(std::move(otherwise))};
}

Names names_of(const std::vector<Dim>& dims) {
  Names names;
  names.reserve(dims.size());
  for (const Dim& dim : dims) names.push_back(dim.name);
  return names;
}

std::string spell(const Names& names) {
  return names.empty() ? "()" : fmt::format("{}", fmt::join(names, " "));
}

std::string spell(const Names& names, std::string_view last) {
  return fmt::format("{}{}{}", fmt::join(names, " "), names.empty() ? "" : " ", last);
}

std::string spell(const std::vector<Dim>& dims) { return spell(names_of(dims)); }

int find_dim(const std::vector<Dim>& dims, std::string_view name) {
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

std::vector<Dim> without_last(const std::vector<Dim>& dims) {
  return {dims.begin(), dims.end() - 1};
}

bool is_subsequence(const std::vector<Dim>& part, const std::vector<Dim>& whole) {
  size_t at = 0;
  for (const Dim& dim : whole) {
    if (at < part.size() && part[at].name == dim.name) ++at;
  }
  return at == part.size();
}

std::vector<std::string> words(std::string_view text) {
  std::vector<std::string> out;
  for (std::string& word : split_text(text, ' ')) {
    if (!word.empty()) out.push_back(std::move(word));
  }
  return out;
}

Result<std::vector<Dim>> parse_dims(std::string_view text) {
  std::vector<Dim> dims;
  for (const std::string& word : words(text)) {
    const size_t equals = word.find('=');
    if (equals == std::string::npos) {
      return invalid_input(fmt::format("expected dims as name=size, found '{}'", word));
    }
    auto size = parse_int(std::string_view(word).substr(equals + 1));
    if (!size || *size < 1) {
      return invalid_input(fmt::format("expected a size of at least 1 in '{}'", word));
    }
    dims.push_back({word.substr(0, equals), *size});
  }
  return dims;
}

std::string dims_text(const std::vector<Dim>& dims) {
  std::string out;
  for (const Dim& dim : dims)
    out += fmt::format("{}{}={}", out.empty() ? "" : " ", dim.name, dim.size);
  return out;
}

namespace {

// Returns the parsed and bound annotation. The layers of a model repeat, so the last results are
// kept, by text and sizes.
Result<Annotation> bound_annotation(const std::string& text, const Operands& operands,
                                    const std::vector<std::vector<Dim>>& outputs) {
  constexpr size_t kMostKept = 512;
  thread_local std::unordered_map<std::string, Annotation> kept;  // for look-up only
  std::vector<std::vector<int64_t>> input_shapes;
  std::vector<std::vector<int64_t>> output_shapes;
  for (size_t i = 0; i < operands.count(); ++i) input_shapes.push_back(operands[i].shape());
  for (const std::vector<Dim>& dims : outputs) {
    output_shapes.emplace_back();
    for (const Dim& dim : dims) output_shapes.back().push_back(dim.size);
  }
  std::string key = text;
  for (const auto* shapes : {&input_shapes, &output_shapes}) {
    for (const std::vector<int64_t>& shape : *shapes) {
      key += '|';
      key.append(reinterpret_cast<const char*>(shape.data()), shape.size() * sizeof(int64_t));
    }
    key += '>';
  }
  const auto known = kept.find(key);
  if (known != kept.end()) return known->second;
  TESSERA_TRY(Annotation annotation, parse_annotation(text));
  TESSERA_TRY_VOID(bind_sizes(annotation, input_shapes, output_shapes));
  if (kept.size() == kMostKept) kept.clear();
  return kept.emplace(std::move(key), std::move(annotation)).first->second;
}

}  // namespace

Result<Inferred> conclude(const Operands& operands, const std::string& annotation,
                          std::vector<std::vector<Dim>> outputs, std::vector<DType> dtypes) {
  Inferred inferred;
  TESSERA_TRY(inferred.annotation, bound_annotation(annotation, operands, outputs));
  inferred.outputs = std::move(outputs);
  inferred.dtypes = std::move(dtypes);
  return inferred;
}

Result<Inferred> infer_along_whole_dim(const Operands& operands) {
  const std::vector<Dim>& dims = operands[0].dims;
  const int position = find_dim(dims, operands.text("dim"));
  if (position < 0) {
    return invalid_input(fmt::format("expected a dim of the input, found '{}' for {}",
                                     operands.text("dim"), describe(operands[0])));
  }
  Names names = names_of(dims);
  names[static_cast<size_t>(position)] += '^';
  return conclude(operands, fmt::format("{} -> {}", spell(names), spell(dims)), {dims},
                  {operands[0].dtype});
}

Status expect_rank(const Tensor& tensor, std::string_view what, size_t least) {
  if (tensor.dims.size() >= least) return {};
  return invalid_input(
      fmt::format("expected {} with at least {} dims, found {}", what, least, describe(tensor)));
}

Status expect_dims(const Tensor& tensor, std::string_view what, const std::vector<Dim>& dims) {
  if (tensor.dims == dims) return {};
  return invalid_input(
      fmt::format("expected {} of dims {}, found {}", what, describe(dims), describe(tensor)));
}

Status expect_floating(const Operands& operands, size_t count) {
  for (size_t i = 0; i < std::min(count, operands.count()); ++i) {
    if (!is_floating(operands[i].dtype)) {
      return invalid_input(
          fmt::format("expected a floating dtype, found {}", describe(operands[i])));
    }
  }
  return {};
}

Status expect_dtype(const Tensor& tensor, std::string_view what, DType dtype) {
  if (tensor.dtype == dtype) return {};
  return invalid_input(
      fmt::format("expected {} of dtype {}, found {}", what, dtype_name(dtype), describe(tensor)));
}

Status expect_like(const Tensor& tensor, std::string_view what, const Tensor& x) {
  TESSERA_TRY_VOID(expect_dims(tensor, what, x.dims));
  return expect_dtype(tensor, what, x.dtype);
}

Status expect_equal_dtypes(const Operands& operands, size_t count) {
  TESSERA_TRY_VOID(expect_floating(operands, count));
  for (size_t i = 1; i < std::min(count, operands.count()); ++i) {
    if (operands[i].dtype != operands[0].dtype) {
      return invalid_input(fmt::format("expected equal dtypes, found {} and {}",
                                       describe(operands[0]), describe(operands[i])));
    }
  }
  return {};
}

Status expect_numbers(const Operands& operands) {
  if (operands[0].dtype != DType::kInt64) return expect_equal_dtypes(operands);
  for (size_t i = 1; i < operands.count(); ++i)
    TESSERA_TRY_VOID(expect_dtype(operands[i], fmt::format("input {}", i), DType::kInt64));
  return {};
}

DType statistics_dtype(DType dtype) {
  return dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
}

int64_t iteration_points(const Op& op) {
  int64_t points = 1;
  for (const OpDim& dim : op.annotation.dims) points *= dim.size;
  return points;
}

int64_t window_points(const Op& op) {
  int64_t points = 1;
  for (size_t d = 0; d < op.annotation.dims.size(); ++d)
    points *= windows_of(op.annotation, static_cast<int>(d), {0, op.annotation.dims[d].size});
  return points;
}

std::function<int64_t(const Op&)> flops_per_point(int64_t flops) {
  return [flops](const Op& op) { return flops * iteration_points(op); };
}

TensorId sum_to(GraphBuilder& builder, const std::string& path, TensorId gradient,
                const std::vector<Dim>& target) {
  std::string missing;
  for (const Dim& dim : builder.tensor(gradient).dims) {
    if (find_dim(target, dim.name) < 0) missing += (missing.empty() ? "" : " ") + dim.name;
  }
  if (missing.empty()) return gradient;
  return builder.op1(path, "reduce_sum", {gradient}, {{"dims", missing}});
}

}  // namespace tessera::kinds
