// Nodes whose operands are all known: tables of positions, masks, shapes of buffers.
#include <algorithm>
#include <cmath>
#include <map>

#include "tessera/import/pt2/aten.h"
#include "tessera/import/pt2/names.h"

namespace tessera::pt2 {
namespace {

using Folded = std::optional<Constant>;
using Fold = Folded (*)(const Call&);

// The tensor or number that an argument is.
Folded operand(const Call& call, std::string_view name) {
  if (const Constant* const known = call.constant(name)) return *known;
  if (const auto number = call.scalar(name)) return Constant{DType::kFloat64, {}, {*number}};
  return std::nullopt;
}

Folded filled(const Call& call, double value) {
  const TensorMeta* const meta = call.output_meta();
  if (meta == nullptr) return std::nullopt;
  const auto count = constant_elements(meta->sizes);
  if (!count) return std::nullopt;
  return Constant{meta->dtype, meta->sizes,
                  std::vector<double>(static_cast<size_t>(*count), value)};
}

template <class F>
Folded mapped(const Call& call, F f) {
  Folded x = operand(call, "self");
  if (!x) return x;
  for (double& value : x->values) value = f(value);
  return x;
}

template <class F>
Folded merged(const Call& call, F f) {
  const Folded a = operand(call, "self"), b = operand(call, "other");
  if (!a || !b) return std::nullopt;
  return merge(*a, *b, f);
}

Folded same(const Call& call) { return operand(call, call.has("input") ? "input" : "self"); }

// The known tensor in another shape of as many elements, which the program states.
Folded reshaped(const Call& call) {
  Folded x = same(call);
  const TensorMeta* const meta = call.output_meta();
  if (!x || meta == nullptr || constant_elements(meta->sizes) != x->elements()) return std::nullopt;
  x->shape = meta->sizes;
  return x;
}

Folded added(const Call& call, double sign) {
  const auto alpha = call.number("alpha", 1);
  if (!alpha) return std::nullopt;
  const double factor = sign * *alpha;
  return merged(call, [factor](double a, double b) { return a + factor * b; });
}

Folded counted(const Call& call) {
  const TensorMeta* const meta = call.output_meta();
  const auto start = call.number("start", 0), step = call.number("step", 1);
  if (meta == nullptr || meta->sizes.size() != 1 || !start || !step) return std::nullopt;
  const auto count = constant_elements(meta->sizes);
  if (!count) return std::nullopt;
  Constant out{meta->dtype, meta->sizes, {}};
  for (int64_t i = 0; i < *count; ++i)
    out.values.push_back(*start + *step * static_cast<double>(i));
  return out;
}

Folded expanded(const Call& call) {
  const Folded x = operand(call, "self");
  const TensorMeta* const meta = call.output_meta();
  return x && meta != nullptr ? expand(*x, meta->sizes) : std::nullopt;
}

Folded permuted(const Call& call) {
  const Folded x = operand(call, "self");
  if (!x) return std::nullopt;
  const auto dims = call.dim_list("dims", x->shape.size());
  if (!dims) return std::nullopt;
  return permute(*x, {dims->begin(), dims->end()});
}

Folded transposed(const Call& call) {
  const Folded x = operand(call, "self");
  if (!x) return std::nullopt;
  const auto a = call.dim("dim0", x->shape.size(), 0), b = call.dim("dim1", x->shape.size(), 1);
  if (!a || !b) return std::nullopt;
  std::vector<int64_t> order;
  for (size_t d = 0; d < x->shape.size(); ++d) order.push_back(static_cast<int64_t>(d));
  std::swap(order[*a], order[*b]);
  return permute(*x, order);
}

Folded sliced(const Call& call) {
  const Folded x = operand(call, "self");
  if (!x) return std::nullopt;
  const auto dim = call.dim("dim", x->shape.size(), 0);
  const auto begin = call.integer("start", 0), end = call.integer("end", INT64_MAX),
             step = call.integer("step", 1);
  if (!dim || !begin || !end || !step) return std::nullopt;
  return slice(*x, static_cast<int64_t>(*dim), *begin, *end, *step);
}

Folded selected(const Call& call) {
  const Folded x = operand(call, "self");
  if (!x) return std::nullopt;
  const auto dim = call.dim("dim", x->shape.size());
  const auto index = call.integer("index");
  if (!dim || !index) return std::nullopt;
  const int64_t size = x->shape[*dim];
  const int64_t at = *index < 0 ? *index + size : *index;
  if (at < 0 || at >= size) return std::nullopt;
  Folded out = slice(*x, static_cast<int64_t>(*dim), at, at + 1, 1);
  if (out) out->shape.erase(out->shape.begin() + static_cast<std::ptrdiff_t>(*dim));
  return out;
}

Folded triangular(const Call& call, bool lower) {
  const Folded x = operand(call, "self");
  const auto diagonal = call.integer("diagonal", 0);
  if (!x || !diagonal || std::abs(*diagonal) > kMaxConstant) return std::nullopt;
  return triangle(*x, *diagonal, lower);
}

Folded chosen(const Call& call) {
  const Folded c = operand(call, "condition"), a = operand(call, "self"),
               b = operand(call, "other");
  if (!c || !a || !b) return std::nullopt;
  // Where the condition holds a, elsewhere b: in two merges of two.
  const Folded marked = merge(*c, *a, [](double k, double v) { return k != 0 ? v : std::nan(""); });
  const Folded kept = merge(*c, *b, [](double k, double v) { return k != 0 ? std::nan("") : v; });
  if (!marked || !kept) return std::nullopt;
  return merge(*marked, *kept, [](double v, double w) { return std::isnan(v) ? w : v; });
}

Folded filled_where(const Call& call) {
  const Folded x = operand(call, "self"), mask = operand(call, "mask");
  const auto value = call.number("value");
  if (!x || !mask || !value) return std::nullopt;
  return merge(*x, *mask, [v = *value](double a, double m) { return m != 0 ? v : a; });
}

// The known tensors of a list; none if one is not known.
std::vector<Constant> operands(const Call& call, std::string_view name) {
  const auto names = call.node().arguments.find(name);
  const auto* const list =
      names == call.node().arguments.end() ? nullptr : std::get_if<TensorsArg>(&names->second);
  std::vector<Constant> parts;
  for (const std::string& tensor : list == nullptr ? std::vector<std::string>{} : list->names) {
    const Lowering::Item* const item = call.lowering().item(tensor);
    const auto* const known = item == nullptr ? nullptr : std::get_if<Constant>(item);
    if (known == nullptr) return {};
    parts.push_back(*known);
  }
  return parts;
}

// Running sums, or differences of neighbours, along a dim.
Folded along(const Call& call, const Constant& x, bool sums) {
  const auto dim = call.dim("dim", x.shape.size(), -1);
  if (!dim) return std::nullopt;
  const int64_t size = x.shape[*dim];
  int64_t stride = 1;
  for (size_t d = *dim + 1; d < x.shape.size(); ++d) stride *= x.shape[d];
  Constant out = x;
  for (int64_t i = 0; i < x.elements(); ++i) {
    if (i / stride % size == 0) continue;
    const auto at = static_cast<size_t>(i), before = static_cast<size_t>(i - stride);
    out.values[at] = sums ? out.values[before] + x.values[at] : x.values[at] - x.values[before];
  }
  return sums ? Folded(out) : slice(out, static_cast<int64_t>(*dim), 1, size, 1);
}

Folded summed_up(const Call& call) {
  const Folded x = operand(call, "self");
  return x ? along(call, *x, true) : std::nullopt;
}

Folded differences(const Call& call) {
  Folded x = operand(call, "self");
  const auto n = call.integer("n", 1);
  if (!x || !n || *n != 1 || call.has("append")) return std::nullopt;
  if (call.has("prepend")) {
    const Folded first = operand(call, "prepend");
    const auto dim = call.dim("dim", x->shape.size(), -1);
    if (!first || !dim) return std::nullopt;
    x = concatenate({*first, *x}, static_cast<int64_t>(*dim));
  }
  return x ? along(call, *x, false) : x;
}

// x[a, b, ..] with an index for each dim.
Folded indexed(const Call& call) {
  const Folded x = operand(call, "self");
  const std::vector<Constant> indices = operands(call, "indices");
  const TensorMeta* const meta = call.output_meta();
  if (!x || meta == nullptr || indices.empty() || indices.size() != x->shape.size())
    return std::nullopt;
  Folded place = Constant{DType::kFloat64, {}, {0}};
  for (size_t d = 0; d < indices.size(); ++d) {
    const auto size = static_cast<double>(x->shape[d]);
    // -1 marks a place outside.
    place = merge(*place, indices[d], [size](double before, double index) {
      const double at = index < 0 ? index + size : index;
      return before < 0 || at < 0 || at >= size ? -1 : before * size + at;
    });
    if (!place) return std::nullopt;
  }
  if (place->shape != meta->sizes) return std::nullopt;
  Constant out{x->dtype, place->shape, {}};
  for (const double at : place->values) {
    if (at < 0) return std::nullopt;
    out.values.push_back(x->values[static_cast<size_t>(at)]);
  }
  return out;
}

Folded concatenated(const Call& call) {
  const std::vector<Constant> parts = operands(call, "tensors");
  if (parts.empty()) return std::nullopt;
  const auto dim = call.dim("dim", parts[0].shape.size(), 0);
  if (!dim) return std::nullopt;
  return concatenate(parts, static_cast<int64_t>(*dim));
}

Folded multiplied(const Call& call) {
  const Folded a = operand(call, "self"), b = operand(call, call.has("mat2") ? "mat2" : "other");
  return a && b ? matrix_product(*a, *b) : std::nullopt;
}

double truth(bool value) { return value ? 1 : 0; }

const std::map<std::string_view, Fold>& folds() {
  static const std::map<std::string_view, Fold> table = {
      {"arange", counted},
      {"full",
       [](const Call& c) {
         const auto v = c.number("fill_value");
         return v ? filled(c, *v) : Folded();
       }},
      {"full_like",
       [](const Call& c) {
         const auto v = c.number("fill_value");
         return v ? filled(c, *v) : Folded();
       }},
      {"ones", [](const Call& c) { return filled(c, 1); }},
      {"ones_like", [](const Call& c) { return filled(c, 1); }},
      {"new_ones", [](const Call& c) { return filled(c, 1); }},
      {"zeros", [](const Call& c) { return filled(c, 0); }},
      {"zeros_like", [](const Call& c) { return filled(c, 0); }},
      {"new_zeros", [](const Call& c) { return filled(c, 0); }},
      {"scalar_tensor",
       [](const Call& c) {
         const auto v = c.number("s");
         return v ? filled(c, *v) : Folded();
       }},
      {"to", same},
      {"_to_copy", same},
      {"type_as", same},
      {"clone", same},
      {"detach", same},
      {"detach_", same},
      {"alias", same},
      {"contiguous", same},
      {"lift_fresh_copy", same},
      {"view", reshaped},
      {"reshape", reshaped},
      {"flatten", reshaped},
      {"unsqueeze", reshaped},
      {"squeeze", reshaped},
      {"expand", expanded},
      {"expand_as", expanded},
      {"permute", permuted},
      {"transpose", transposed},
      {"t", transposed},
      {"slice", sliced},
      {"select", selected},
      {"cat", concatenated},
      {"cumsum", summed_up},
      {"diff", differences},
      {"index", indexed},
      {"tril", [](const Call& c) { return triangular(c, true); }},
      {"triu", [](const Call& c) { return triangular(c, false); }},
      {"where", chosen},
      {"masked_fill", filled_where},
      {"matmul", multiplied},
      {"mm", multiplied},
      {"bmm", multiplied},
      {"add", [](const Call& c) { return added(c, 1); }},
      {"add_", [](const Call& c) { return added(c, 1); }},
      {"sub", [](const Call& c) { return added(c, -1); }},
      {"mul", [](const Call& c) { return merged(c, [](double a, double b) { return a * b; }); }},
      {"div",
       [](const Call& c) {
         return c.has("rounding_mode") ? Folded()
                                       : merged(c, [](double a, double b) { return a / b; });
       }},
      {"pow",
       [](const Call& c) {
         const Folded a = operand(c, "self"), b = operand(c, "exponent");
         return a && b ? merge(*a, *b, [](double x, double y) { return std::pow(x, y); })
                       : Folded();
       }},
      {"neg", [](const Call& c) { return mapped(c, [](double x) { return -x; }); }},
      {"reciprocal", [](const Call& c) { return mapped(c, [](double x) { return 1 / x; }); }},
      {"rsub", [](const Call& c) { return merged(c, [](double a, double b) { return b - a; }); }},
      {"exp", [](const Call& c) { return mapped(c, [](double x) { return std::exp(x); }); }},
      {"log", [](const Call& c) { return mapped(c, [](double x) { return std::log(x); }); }},
      {"sqrt", [](const Call& c) { return mapped(c, [](double x) { return std::sqrt(x); }); }},
      {"rsqrt", [](const Call& c) { return mapped(c, [](double x) { return 1 / std::sqrt(x); }); }},
      {"cos", [](const Call& c) { return mapped(c, [](double x) { return std::cos(x); }); }},
      {"sin", [](const Call& c) { return mapped(c, [](double x) { return std::sin(x); }); }},
      {"logical_not",
       [](const Call& c) { return mapped(c, [](double x) { return truth(x == 0); }); }},
      {"logical_and",
       [](const Call& c) {
         return merged(c, [](double a, double b) { return truth(a != 0 && b != 0); });
       }},
      {"logical_or",
       [](const Call& c) {
         return merged(c, [](double a, double b) { return truth(a != 0 || b != 0); });
       }},
      {"eq",
       [](const Call& c) { return merged(c, [](double a, double b) { return truth(a == b); }); }},
      {"ne",
       [](const Call& c) { return merged(c, [](double a, double b) { return truth(a != b); }); }},
      {"lt",
       [](const Call& c) { return merged(c, [](double a, double b) { return truth(a < b); }); }},
      {"le",
       [](const Call& c) { return merged(c, [](double a, double b) { return truth(a <= b); }); }},
      {"gt",
       [](const Call& c) { return merged(c, [](double a, double b) { return truth(a > b); }); }},
      {"ge",
       [](const Call& c) { return merged(c, [](double a, double b) { return truth(a >= b); }); }},
      // Of truths; other integers have no such ops here.
      {"bitwise_not",
       [](const Call& c) {
         const Constant* const x = c.constant("self");
         return x != nullptr && x->dtype == DType::kBool
                    ? mapped(c, [](double v) { return truth(v == 0); })
                    : Folded();
       }},
      {"bitwise_and",
       [](const Call& c) {
         const Constant* const x = c.constant("self");
         return x != nullptr && x->dtype == DType::kBool
                    ? merged(c, [](double a, double b) { return truth(a != 0 && b != 0); })
                    : Folded();
       }},
      {"__and__",
       [](const Call& c) {
         const Constant* const x = c.constant("self");
         return x != nullptr && x->dtype == DType::kBool
                    ? merged(c, [](double a, double b) { return truth(a != 0 && b != 0); })
                    : Folded();
       }},
      {"bitwise_or",
       [](const Call& c) {
         const Constant* const x = c.constant("self");
         return x != nullptr && x->dtype == DType::kBool
                    ? merged(c, [](double a, double b) { return truth(a != 0 || b != 0); })
                    : Folded();
       }},
  };
  return table;
}

}  // namespace

std::optional<Constant> fold(const Call& call, std::string_view name) {
  const auto found = folds().find(name);
  return found == folds().end() ? std::nullopt : found->second(call);
}

bool fold_parts(const Call& call, std::string_view name) {
  const Constant* const x = call.constant("self");
  if (x == nullptr || (name != "split" && name != "chunk" && name != "split_with_sizes"))
    return false;
  const auto dim = call.dim("dim", x->shape.size(), 0);
  if (!dim) return false;
  int64_t begin = 0;
  for (size_t i = 0; i < call.node().outputs.size(); ++i) {
    const TensorMeta* const meta = call.output_meta(i);
    if (meta == nullptr || meta->sizes.size() != x->shape.size()) return false;
    std::optional<Constant> part =
        slice(*x, static_cast<int64_t>(*dim), begin, begin + meta->sizes[*dim], 1);
    if (!part || part->shape != meta->sizes) return false;
    begin += meta->sizes[*dim];
    call.set(std::move(*part), i);
  }
  return true;
}

}  // namespace tessera::pt2
