// The arguments and results of a node, by name (Call of lower.h).
#include <fmt/format.h>

#include <algorithm>

#include "tessera/import/pt2/lower.h"

namespace tessera::pt2 {

std::string_view op_name(std::string_view target) {
  constexpr std::string_view kAten = "torch.ops.aten.";
  if (!target.starts_with(kAten)) return "";
  target.remove_prefix(kAten.size());
  return target.substr(0, target.find('.'));
}

DimTable& Call::dims() const { return lowering_.dims(); }

const Argument* Call::argument(std::string_view name) const {
  const auto found = node_.arguments.find(name);
  return found == node_.arguments.end() ? nullptr : &found->second;
}

bool Call::has(std::string_view name) const {
  const Argument* const found = argument(name);
  return found != nullptr && !std::holds_alternative<NoneArg>(*found);
}

Result<Value> Call::value(std::string_view name) const {
  const Argument* const found = argument(name);
  const auto* tensor = found == nullptr ? nullptr : std::get_if<TensorArg>(found);
  if (tensor == nullptr)
    return invalid_input(fmt::format("argument '{}': expected a tensor, found none", name));
  return lowering_.value_of(tensor->name);
}

Result<std::optional<Value>> Call::optional_value(std::string_view name) const {
  if (!has(name)) return std::optional<Value>();
  TESSERA_TRY(Value out, value(name));
  return std::optional(std::move(out));
}

Result<std::vector<Value>> Call::values(std::string_view name) const {
  const Argument* const found = argument(name);
  if (found == nullptr || !std::holds_alternative<TensorsArg>(*found)) {
    return invalid_input(
        fmt::format("argument '{}': expected a list of tensors, found none", name));
  }
  std::vector<Value> out;
  for (const std::string& tensor : std::get<TensorsArg>(*found).names) {
    const Lowering::Item* const item = lowering_.item(tensor);
    const auto* const known = item == nullptr ? nullptr : std::get_if<Constant>(item);
    if (known != nullptr && known->values.empty()) continue;
    TESSERA_TRY(Value value, lowering_.value_of(tensor));
    out.push_back(std::move(value));
  }
  if (out.empty()) {
    return invalid_input(
        fmt::format("argument '{}': expected at least one tensor, found none", name));
  }
  return out;
}

std::string Call::tensor_name(std::string_view name) const {
  const Argument* const found = argument(name);
  const auto* tensor = found == nullptr ? nullptr : std::get_if<TensorArg>(found);
  return tensor == nullptr ? "" : tensor->name;
}

const Constant* Call::constant(std::string_view name) const {
  const Argument* const found = argument(name);
  const auto* tensor = found == nullptr ? nullptr : std::get_if<TensorArg>(found);
  const Lowering::Item* const item = tensor == nullptr ? nullptr : lowering_.item(tensor->name);
  return item == nullptr ? nullptr : std::get_if<Constant>(item);
}

std::optional<double> Call::scalar(std::string_view name) const {
  const Argument* const found = argument(name);
  if (found == nullptr) return std::nullopt;
  if (const auto* integer = std::get_if<int64_t>(found)) return static_cast<double>(*integer);
  if (const auto* number = std::get_if<double>(found)) return *number;
  if (const auto* truth = std::get_if<bool>(found)) return *truth ? 1 : 0;
  const Constant* const known = constant(name);
  if (known != nullptr && known->elements() == 1) return known->values[0];
  return std::nullopt;
}

Result<double> Call::number(std::string_view name, std::optional<double> otherwise) const {
  if (const std::optional<double> found = scalar(name)) return *found;
  if (!has(name) && otherwise) return *otherwise;
  return invalid_input(fmt::format("argument '{}': expected a number, found none", name));
}

Result<int64_t> Call::integer(std::string_view name, std::optional<int64_t> otherwise) const {
  const Argument* const found = argument(name);
  if (const auto* integer = found == nullptr ? nullptr : std::get_if<int64_t>(found))
    return *integer;
  if (!has(name) && otherwise) return *otherwise;
  return invalid_input(fmt::format("argument '{}': expected an integer, found none", name));
}

Result<bool> Call::flag(std::string_view name, bool otherwise) const {
  const Argument* const found = argument(name);
  if (const auto* truth = found == nullptr ? nullptr : std::get_if<bool>(found)) return *truth;
  if (!has(name)) return otherwise;
  return invalid_input(
      fmt::format("argument '{}': expected true or false, found another value", name));
}

std::string Call::text(std::string_view name, std::string otherwise) const {
  const Argument* const found = argument(name);
  const auto* text = found == nullptr ? nullptr : std::get_if<std::string>(found);
  return text == nullptr ? otherwise : *text;
}

Result<std::vector<int64_t>> Call::integers(std::string_view name,
                                            std::optional<std::vector<int64_t>> otherwise) const {
  const Argument* const found = argument(name);
  if (found != nullptr) {
    if (const auto* list = std::get_if<std::vector<int64_t>>(found)) return *list;
    if (const auto* one = std::get_if<int64_t>(found)) return std::vector<int64_t>{*one};
    // The exporter writes an empty list of integers as an empty list of tensors.
    const auto* none = std::get_if<TensorsArg>(found);
    if (none != nullptr && none->names.empty()) return std::vector<int64_t>{};
  }
  if (!has(name) && otherwise) return *otherwise;
  return invalid_input(fmt::format("argument '{}': expected integers, found none", name));
}

Result<size_t> Call::dim(std::string_view name, size_t rank,
                         std::optional<int64_t> otherwise) const {
  TESSERA_TRY(int64_t at, integer(name, otherwise));
  const auto dims = static_cast<int64_t>(rank);
  if (at < -dims || at >= dims) {
    return invalid_input(
        fmt::format("argument '{}': expected a dim of {}, found {}", name, rank, at));
  }
  return static_cast<size_t>(at < 0 ? at + dims : at);
}

Result<std::vector<size_t>> Call::dim_list(std::string_view name, size_t rank) const {
  std::vector<size_t> out;
  TESSERA_TRY(const std::vector<int64_t> given, integers(name, std::vector<int64_t>{}));
  const auto dims = static_cast<int64_t>(rank);
  for (const int64_t at : given) {
    const auto place = static_cast<size_t>(at < 0 ? at + dims : at);
    if (at < -dims || at >= dims || std::find(out.begin(), out.end(), place) != out.end()) {
      return invalid_input(
          fmt::format("argument '{}': expected distinct dims of {}, found {}", name, rank, at));
    }
    out.push_back(place);
  }
  if (given.empty()) {
    for (size_t d = 0; d < rank; ++d) out.push_back(d);
  }
  return out;
}

const TensorMeta* Call::output_meta(size_t output) const {
  if (output >= node_.outputs.size()) return nullptr;
  const auto& tensors = lowering_.program().tensors;
  const auto found = tensors.find(node_.outputs[output]);
  return found == tensors.end() ? nullptr : &found->second;
}

void Call::set(Value value, size_t output) const {
  if (output < node_.outputs.size()) lowering_.set(node_.outputs[output], std::move(value));
}

void Call::set(Constant constant, size_t output) const {
  if (output < node_.outputs.size()) lowering_.set(node_.outputs[output], std::move(constant));
}

tl::unexpected<Error> Call::failed(const std::string& message) const {
  const std::string_view name = op_name(node_.target);
  return invalid_input(fmt::format(
      "node '{}' ({}) in {}: {}", node_.name,
      name.empty() ? node_.target : "aten." + std::string(name),
      node_.module.empty() ? "the outermost module" : fmt::format("module '{}'", node_.module),
      message));
}

}  // namespace tessera::pt2
