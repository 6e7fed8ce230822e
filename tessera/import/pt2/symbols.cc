#include "tessera/import/pt2/symbols.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "tessera/base/one_line.h"
#include "tessera/base/text.h"

namespace tessera::pt2 {
namespace {

using Json = nlohmann::json;
using Symbols = std::map<std::string, int64_t, std::less<>>;

constexpr int64_t kMostSize = int64_t{1} << 48;
constexpr int kMostNested = 32;

// ---- expressions

// Computes a function of the format. Returns no value if it has none, or if it is too large.
using Function = std::optional<int64_t> (*)(const std::vector<int64_t>& values);

std::optional<int64_t> sum(const std::vector<int64_t>& values) {
  int64_t out = 0;
  for (const int64_t value : values)
    if (__builtin_add_overflow(out, value, &out)) return std::nullopt;
  return out;
}
std::optional<int64_t> multiply(const std::vector<int64_t>& values) {
  int64_t out = 1;
  for (const int64_t value : values)
    if (__builtin_mul_overflow(out, value, &out)) return std::nullopt;
  return out;
}
std::optional<int64_t> least(const std::vector<int64_t>& values) {
  return values.empty() ? std::nullopt : std::optional(*std::ranges::min_element(values));
}
std::optional<int64_t> most(const std::vector<int64_t>& values) {
  return values.empty() ? std::nullopt : std::optional(*std::ranges::max_element(values));
}
std::optional<int64_t> divide(const std::vector<int64_t>& values) {
  if (values.size() != 2 || values[0] < 0 || values[1] < 1) return std::nullopt;
  return values[0] / values[1];
}
std::optional<int64_t> remainder(const std::vector<int64_t>& values) {
  if (values.size() != 2 || values[0] < 0 || values[1] < 1) return std::nullopt;
  return values[0] % values[1];
}

constexpr std::pair<std::string_view, Function> kFunctions[] = {
    {"Add", sum},         {"Mul", multiply},    {"Min", least},
    {"Max", most},        {"FloorDiv", divide}, {"IntTrueDiv", divide},
    {"CleanDiv", divide}, {"Mod", remainder},   {"PythonMod", remainder}};

// Reads an expression from left to right.
class Expression {
 public:
  Expression(std::string_view text, const Symbols& symbols) : text_(text), symbols_(symbols) {}

  std::optional<int64_t> value() {
    const auto out = term(0);
    return out && rest().empty() ? out : std::nullopt;
  }

 private:
  std::string_view rest() const { return trim(text_.substr(at_)); }
  bool take(char what) {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
    if (at_ >= text_.size() || text_[at_] != what) return false;
    ++at_;
    return true;
  }
  // Takes the text up to the next of the characters `ends`.
  std::string_view until(std::string_view ends) {
    const size_t end = std::min(text_.find_first_of(ends, at_), text_.size());
    const std::string_view out = trim(text_.substr(at_, end - at_));
    at_ = end;
    return out;
  }
  std::optional<int64_t> term(int nested) {
    if (nested > kMostNested) return std::nullopt;
    const std::string_view name = until("(,)");
    if (!take('(')) {
      const auto number = parse_int(name);
      return number ? std::optional(*number) : std::nullopt;
    }
    if (name == "Symbol") return symbol();
    std::vector<int64_t> values;
    do {
      const auto one = term(nested + 1);
      if (!one) return std::nullopt;
      values.push_back(*one);
    } while (take(','));
    if (!take(')')) return std::nullopt;
    if (name == "Integer") return values.size() == 1 ? std::optional(values[0]) : std::nullopt;
    for (const auto& [known, function] : kFunctions)
      if (known == name) return function(values);
    return std::nullopt;
  }
  // Reads 's0', positive=True, integer=True) and takes the bracket.
  std::optional<int64_t> symbol() {
    if (!take('\'')) return std::nullopt;
    const auto known = symbols_.find(until("'"));
    until(")");
    if (!take(')') || known == symbols_.end()) return std::nullopt;
    return known->second;
  }

  std::string_view text_;
  const Symbols& symbols_;
  size_t at_ = 0;
};

// ---- the document

const Json* child(const Json& json, std::initializer_list<const char*> path) {
  const Json* at = &json;
  for (const char* key : path) {
    if (!at->is_object() || !at->contains(key)) return nullptr;
    at = &(*at)[key];
  }
  return at;
}

std::string text_at(const Json& json, std::initializer_list<const char*> path) {
  const Json* found = child(json, path);
  return found != nullptr && found->is_string() ? found->get<std::string>() : "";
}

// Returns the name of the symbol, if the expression of a size is a symbol alone, or "".
std::string symbol_of(const Json& size) {
  constexpr std::string_view kHead = "Symbol('";
  const std::string text = text_at(size, {"as_expr", "expr_str"});
  const size_t end = text.find('\'', kHead.size());
  if (!text.starts_with(kHead) || end == std::string::npos || text.find(')') + 1 != text.size())
    return "";
  return text.substr(kHead.size(), end - kHead.size());
}

// Calls `visit` for each object of the document, from the outside to the inside. parse_json has
// limited how deeply objects are nested.
template <class Visit>
void each_object(Json& json, const Visit& visit) {
  if (json.is_object()) visit(json);
  if (json.is_structured()) {
    for (Json& item : json) each_object(item, visit);
  }
}

// Returns the values that symbols have in the example with which the module was exported.
Symbols example_values(Json& document) {
  Symbols out;
  each_object(document, [&](const Json& json) {
    const std::string symbol = symbol_of(json);
    const Json* hint = child(json, {"as_expr", "hint", "as_int"});
    if (!symbol.empty() && hint != nullptr && hint->is_number_integer())
      out[symbol] = hint->get<int64_t>();
  });
  return out;
}

// Returns the size, in the JSON, of the dim `number` of the first input of the user that has such a
// dim, preferably one that is open; null if there is none.
Json size_of_inputs(const Json& graph, const Json& inputs, size_t number) {
  Json fixed;
  const Json* tensors = child(graph, {"tensor_values"});
  for (const Json& input : inputs.is_array() ? inputs : Json::array()) {
    const std::string name = text_at(input, {"user_input", "arg", "as_tensor", "name"});
    if (name.empty() || tensors == nullptr) continue;
    const Json* sizes = child(*tensors, {name.c_str(), "sizes"});
    if (sizes == nullptr || !sizes->is_array() || sizes->size() <= number) continue;
    if (!symbol_of((*sizes)[number]).empty()) return (*sizes)[number];
    if (fixed.is_null()) fixed = (*sizes)[number];
  }
  return fixed;
}

Status state_sizes(const Json& document, const StatedSizes& stated, Symbols& symbols) {
  const Json* module = child(document, {"graph_module"});
  const Json* graph = module == nullptr ? nullptr : child(*module, {"graph"});
  const Json* inputs = module == nullptr ? nullptr : child(*module, {"signature", "input_specs"});
  const Json* ranges = child(document, {"range_constraints"});
  for (const auto& [name, value] : stated) {
    const Json size = graph == nullptr || inputs == nullptr
                          ? Json()
                          : size_of_inputs(*graph, *inputs, name == "batch" ? 0 : 1);
    const std::string symbol = symbol_of(size);
    if (symbol.empty() && size == Json{{"as_int", value}}) continue;
    if (symbol.empty()) {
      return invalid_input(fmt::format(
          "{}={}: expected a module whose {} is open (dynamic_shapes of torch.export), found one "
          "that fixes it",
          name, value, name));
    }
    const Json* range = ranges == nullptr ? nullptr : child(*ranges, {symbol.c_str()});
    const auto bound = [&](const char* key, int64_t otherwise) {
      const Json* found = range == nullptr ? nullptr : child(*range, {key});
      return found != nullptr && found->is_number_integer() ? found->get<int64_t>() : otherwise;
    };
    const int64_t low = bound("min_val", 1), high = bound("max_val", kMostSize);
    if (value < low || value > high) {
      return invalid_input(
          fmt::format("{}={}: expected a size from {} to {}, the range that the "
                      "module was exported for",
                      name, value, low, high));
    }
    symbols[symbol] = value;
  }
  return {};
}

// Returns whether a node's results are numbers or truths about symbols, or a check of them.
bool computes_symbols(const Json& node) {
  static const std::set<std::string, std::less<>> checks = {
      "torch.ops.aten._assert_scalar.default", "torch.ops.aten.sym_constrain_range.default",
      "torch.ops.aten.sym_constrain_range_for_size.default"};
  if (checks.contains(text_at(node, {"target"}))) return true;
  const Json* outputs = child(node, {"outputs"});
  if (outputs == nullptr || !outputs->is_array() || outputs->empty()) return false;
  return std::all_of(outputs->begin(), outputs->end(), [](const Json& output) {
    return output.is_object() && (output.contains("as_sym_int") || output.contains("as_sym_bool") ||
                                  output.contains("as_sym_float"));
  });
}

}  // namespace

Result<int64_t> value_of_expression(std::string_view text, const Symbols& symbols) {
  const auto value = Expression(text, symbols).value();
  if (value && *value >= -kMostSize && *value <= kMostSize) return *value;
  return invalid_input(
      fmt::format("expected a sum, product, quotient, least or largest of sizes, "
                  "found {}",
                  short_line(text, 80)));
}

Status fix_symbols(Json& document, const StatedSizes& stated) {
  Symbols symbols = example_values(document);
  TESSERA_TRY_VOID(state_sizes(document, stated, symbols));
  if (symbols.empty()) return {};
  Status failed;
  each_object(document, [&](Json& json) {
    if (json.contains("nodes") && json["nodes"].is_array()) {
      Json kept = Json::array();
      for (Json& node : json["nodes"])
        if (!computes_symbols(node)) kept.push_back(std::move(node));
      json["nodes"] = std::move(kept);
    }
    const std::string text = text_at(json, {"as_expr", "expr_str"});
    if (text.empty()) return;
    const Json* hint = child(json, {"as_expr", "hint", "as_int"});
    const auto value = value_of_expression(text, symbols);
    if (value) {
      json = Json{{"as_int", *value}};
    } else if (stated.empty() && hint != nullptr) {
      json = Json{{"as_int", *hint}};
    } else if (failed) {
      failed = tl::unexpected(value.error());
    }
  });
  TESSERA_TRY_VOID(failed);
  // Names of numbers are names of expressions, which are numbers now.
  each_object(document, [&](Json& json) {
    const Json* names = child(json, {"sym_int_values"});
    if (names == nullptr) return;
    const Json values = *names;
    each_object(json, [&](Json& inner) {
      const std::string name = text_at(inner, {"as_name"});
      const Json* value = name.empty() ? nullptr : child(values, {name.c_str(), "as_int"});
      if (value != nullptr && inner.size() == 1) inner = Json{{"as_int", *value}};
    });
  });
  return {};
}

}  // namespace tessera::pt2
