// Computes at import the results of nodes whose operands are all known: tables of positions, masks,
// views of buffers.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "tessera/import/pt2/aten.h"
#include "tessera/import/pt2/names.h"

namespace tessera::pt2 {
namespace {

using Folded = std::optional<Constant>;
using Fold = Folded (*)(const Call&);

// An argument that is a tensor known at import or a number. A tensor is not copied: this object
// points to the one that the lowering keeps.
class Operand {
 public:
  Operand(const Call& call, std::string_view name) : known_(call.constant(name)) {
    if (known_ != nullptr) return;
    if (const auto number = call.scalar(name)) number_ = Constant{DType::kFloat64, {}, {*number}};
  }
  explicit operator bool() const { return known_ != nullptr || number_; }
  const Constant& operator*() const { return known_ != nullptr ? *known_ : *number_; }
  const Constant* operator->() const { return &**this; }

 private:
  const Constant* known_;
  std::optional<Constant> number_;
};

Folded copied(const Operand& x) { return x ? Folded(*x) : Folded(); }

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
  Folded x = copied(Operand(call, "self"));
  if (!x) return x;
  for (double& value : x->values) value = f(value);
  return x;
}

template <class F>
Folded merged(const Call& call, F f) {
  const Operand a(call, "self"), b(call, "other");
  if (!a || !b) return std::nullopt;
  return merge(*a, *b, f);
}

Folded same(const Call& call) {
  return copied(Operand(call, call.has("input") ? "input" : "self"));
}

// Returns the operand with the shape that the program states for the result, which must have the
// same number of elements.
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

Folded folded_expand(const Call& call) {
  const Operand x(call, "self");
  const TensorMeta* const meta = call.output_meta();
  return x && meta != nullptr ? expand(*x, meta->sizes) : std::nullopt;
}

Folded permuted(const Call& call) {
  const Operand x(call, "self");
  if (!x) return std::nullopt;
  const auto dims = call.dim_list("dims", x->shape.size());
  if (!dims) return std::nullopt;
  return permute(*x, {dims->begin(), dims->end()});
}

Folded transposed(const Call& call) {
  const Operand x(call, "self");
  if (!x) return std::nullopt;
  const auto a = call.dim("dim0", x->shape.size(), 0), b = call.dim("dim1", x->shape.size(), 1);
  if (!a || !b) return std::nullopt;
  std::vector<int64_t> order;
  for (size_t d = 0; d < x->shape.size(); ++d) order.push_back(static_cast<int64_t>(d));
  std::swap(order[*a], order[*b]);
  return permute(*x, order);
}

Folded sliced(const Call& call) {
  const Operand x(call, "self");
  if (!x) return std::nullopt;
  const auto dim = call.dim("dim", x->shape.size(), 0);
  const auto begin = call.integer("start", 0), end = call.integer("end", INT64_MAX),
             step = call.integer("step", 1);
  if (!dim || !begin || !end || !step) return std::nullopt;
  return slice(*x, static_cast<int64_t>(*dim), *begin, *end, *step);
}

Folded selected(const Call& call) {
  const Operand x(call, "self");
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
  const Operand x(call, "self");
  const auto diagonal = call.integer("diagonal", 0);
  if (!x || !diagonal || *diagonal > kMaxConstant || *diagonal < -kMaxConstant) return std::nullopt;
  return triangle(*x, *diagonal, lower);
}

Folded chosen(const Call& call) {
  const Operand c(call, "condition"), a(call, "self"), b(call, "other");
  if (!c || !a || !b) return std::nullopt;
  return choose(*c, *a, *b);
}

Folded filled_where(const Call& call) {
  const Operand x(call, "self"), mask(call, "mask");
  const auto value = call.number("value");
  if (!x || !mask || !value) return std::nullopt;
  return merge(*x, *mask, [v = *value](double a, double m) { return m != 0 ? v : a; });
}

// Returns the tensors of a list argument; an empty list if one of them is not known at import.
std::vector<const Constant*> operands(const Call& call, std::string_view name) {
  const auto names = call.node().arguments.find(name);
  const auto* const list =
      names == call.node().arguments.end() ? nullptr : std::get_if<TensorsArg>(&names->second);
  std::vector<const Constant*> parts;
  for (const std::string& tensor : list == nullptr ? std::vector<std::string>{} : list->names) {
    const Lowering::Item* const item = call.lowering().item(tensor);
    const auto* const known = item == nullptr ? nullptr : std::get_if<Constant>(item);
    if (known == nullptr) return {};
    parts.push_back(known);
  }
  return parts;
}

// Computes along a dim the running sums (if `sums`), or the difference of each element and the
// previous one.
Folded along(const Call& call, const Constant& x, bool sums) {
  const auto dim = call.dim("dim", x.shape.size(), -1);
  if (!dim) return std::nullopt;
  const int64_t size = x.shape[*dim];
  if (x.values.empty()) return std::nullopt;
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
  const Operand x(call, "self");
  return x ? along(call, *x, true) : std::nullopt;
}

Folded differences(const Call& call) {
  Folded x = copied(Operand(call, "self"));
  const auto n = call.integer("n", 1);
  if (!x || !n || *n != 1 || call.has("append")) return std::nullopt;
  if (call.has("prepend")) {
    const Operand first(call, "prepend");
    const auto dim = call.dim("dim", x->shape.size(), -1);
    if (!first || !dim) return std::nullopt;
    x = concatenate({&*first, &*x}, static_cast<int64_t>(*dim));
  }
  return x ? along(call, *x, false) : x;
}

// Computes x[a, b, ..] with one tensor of indices for each dim of x.
Folded indexed(const Call& call) {
  const Operand x(call, "self");
  const std::vector<const Constant*> indices = operands(call, "indices");
  const TensorMeta* const meta = call.output_meta();
  if (!x || meta == nullptr || indices.empty() || indices.size() != x->shape.size())
    return std::nullopt;
  Folded place = Constant{DType::kFloat64, {}, {0}};
  for (size_t d = 0; d < indices.size(); ++d) {
    const auto size = static_cast<double>(x->shape[d]);
    // -1 marks an index that is out of range.
    place = merge(*place, *indices[d], [size](double before, double index) {
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
  std::vector<const Constant*> parts = operands(call, "tensors");
  std::erase_if(parts, [](const Constant* part) { return part->values.empty(); });
  if (parts.empty()) return std::nullopt;
  const auto dim = call.dim("dim", parts[0]->shape.size(), 0);
  if (!dim) return std::nullopt;
  return concatenate(parts, static_cast<int64_t>(*dim));
}

// Repeats each element along a dim `repeats` times (repeat_interleave).
Folded each_again(const Call& call) {
  const Operand x(call, "self");
  if (!x || !call.has("dim")) return std::nullopt;
  const auto dim = call.dim("dim", x->shape.size());
  const auto times = call.integer("repeats");
  if (!dim || !times || *times < 1 || *times > kMaxConstant) return std::nullopt;
  Constant apart = *x;
  const auto behind = static_cast<std::ptrdiff_t>(*dim) + 1;
  apart.shape.insert(apart.shape.begin() + behind, 1);
  std::vector<int64_t> shape = apart.shape;
  shape[*dim + 1] = *times;
  Folded out = expand(apart, shape);
  if (!out) return out;
  out->shape = x->shape;
  out->shape[*dim] *= *times;
  return out;
}

// Repeats each dim as a whole, as often as `repeats` says for the dim.
Folded whole_again(const Call& call) {
  const Operand x(call, "self");
  const auto times = call.integers("repeats");
  if (!x || !times || times->size() < x->shape.size() || std::ssize(*times) > kMaxRank)
    return std::nullopt;
  std::vector<int64_t> sizes(times->size() - x->shape.size(), 1);
  sizes.insert(sizes.end(), x->shape.begin(), x->shape.end());
  Constant apart{x->dtype, {}, x->values};
  std::vector<int64_t> shape, joined;
  for (size_t d = 0; d < sizes.size(); ++d) {
    const int64_t count = (*times)[d];
    if (count < 1 || count > kMaxConstant) return std::nullopt;
    apart.shape.insert(apart.shape.end(), {1, sizes[d]});
    shape.insert(shape.end(), {count, sizes[d]});
    joined.push_back(count * sizes[d]);
  }
  Folded out = expand(apart, shape);
  if (out) out->shape = joined;
  return out;
}

Folded multiplied(const Call& call) {
  const Operand a(call, "self"), b(call, call.has("mat2") ? "mat2" : "other");
  return a && b ? matrix_product(*a, *b) : std::nullopt;
}

double truth(bool value) { return value ? 1 : 0; }

double sign(double x) { return x > 0 ? 1 : x < 0 ? -1 : 0; }

// Computes min(x, other) or max(x, other), element by element. Extremes over dims, which have no
// operand `other`, are not computed here.
template <class F>
Folded extreme(const Call& call, F f) {
  return call.has("other") ? merged(call, f) : Folded();
}

Folded clamped(const Call& call) {
  const auto least = call.number("min", -std::numeric_limits<double>::infinity());
  const auto most = call.number("max", std::numeric_limits<double>::infinity());
  if (!least || !most) return std::nullopt;
  return mapped(call, [&](double x) { return std::min(std::max(x, *least), *most); });
}

// Computes x / other rounded down (floor_divide).
Folded whole_quotients(const Call& call) {
  return merged(call, [](double a, double b) { return std::floor(a / b); });
}

// Takes along dim `dim` the element of x at the index that the id says (gather).
Folded picked(const Call& call) {
  const Operand x(call, "self"), ids(call, "index");
  if (!x || !ids || x->shape.size() != ids->shape.size()) return std::nullopt;
  const auto dim = call.dim("dim", x->shape.size());
  if (!dim) return std::nullopt;
  Constant out{x->dtype, ids->shape, {}};
  for (int64_t i = 0; i < ids->elements(); ++i) {
    const auto id = static_cast<int64_t>(ids->values[static_cast<size_t>(i)]);
    int64_t place = 0, rest = i, stride = 1;
    for (size_t d = x->shape.size(); d-- > 0;) {
      const int64_t at = d == *dim ? id : rest % ids->shape[d];
      if (at < 0 || at >= x->shape[d]) return std::nullopt;
      place += at * stride;
      rest /= ids->shape[d];
      stride *= x->shape[d];
    }
    out.values.push_back(x->values[static_cast<size_t>(place)]);
  }
  return out;
}

// Returns the identity matrix with the shape that the program states.
Folded identity(const Call& call) {
  Folded x = filled(call, 0);
  if (!x || x->shape.size() != 2) return std::nullopt;
  const int64_t columns = x->shape[1];
  for (int64_t i = 0; i < std::min(x->shape[0], columns); ++i)
    x->values[static_cast<size_t>(i * columns + i)] = 1;
  return x;
}

// Returns the source with the shape of the tensor that `copy_` writes.
Folded copied_over(const Call& call) {
  const Operand source(call, "src");
  const TensorMeta* const meta = call.output_meta();
  return source && meta != nullptr ? expand(*source, meta->sizes) : std::nullopt;
}

// Returns whether the operand is boolean. Only then are bitwise ops computed here.
bool of_truths(const Call& call) {
  const Constant* const x = call.constant("self");
  return x != nullptr && x->dtype == DType::kBool;
}
Folded both(const Call& call) {
  if (!of_truths(call)) return std::nullopt;
  return merged(call, [](double a, double b) { return truth(a != 0 && b != 0); });
}

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
      {"new_full",
       [](const Call& c) {
         const auto v = c.number("fill_value");
         return v ? filled(c, *v) : Folded();
       }},
      {"fill_",
       [](const Call& c) {
         const auto v = c.number("value");
         return v ? filled(c, *v) : Folded();
       }},
      {"ones", [](const Call& c) { return filled(c, 1); }},
      {"ones_like", [](const Call& c) { return filled(c, 1); }},
      {"new_ones", [](const Call& c) { return filled(c, 1); }},
      {"zeros", [](const Call& c) { return filled(c, 0); }},
      {"zeros_like", [](const Call& c) { return filled(c, 0); }},
      {"new_zeros", [](const Call& c) { return filled(c, 0); }},
      {"eye", identity},
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
      {"expand", folded_expand},
      {"expand_as", folded_expand},
      {"permute", permuted},
      {"transpose", transposed},
      {"t", transposed},
      {"slice", sliced},
      {"select", selected},
      {"cat", concatenated},
      {"gather", picked},
      {"copy_", copied_over},
      {"repeat", whole_again},
      {"repeat_interleave", each_again},
      {"cumsum", summed_up},
      {"diff", differences},
      {"index", indexed},
      {"tril", [](const Call& c) { return triangular(c, true); }},
      {"triu", [](const Call& c) { return triangular(c, false); }},
      {"where", chosen},
      {"masked_fill", filled_where},
      {"masked_fill_", filled_where},
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
         const Operand a(c, "self"), b(c, "exponent");
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
      {"abs", [](const Call& c) { return mapped(c, [](double x) { return std::abs(x); }); }},
      {"sign", [](const Call& c) { return mapped(c, sign); }},
      {"floor", [](const Call& c) { return mapped(c, [](double x) { return std::floor(x); }); }},
      {"ceil", [](const Call& c) { return mapped(c, [](double x) { return std::ceil(x); }); }},
      {"min",
       [](const Call& c) { return extreme(c, [](double a, double b) { return std::min(a, b); }); }},
      {"minimum",
       [](const Call& c) { return extreme(c, [](double a, double b) { return std::min(a, b); }); }},
      {"max",
       [](const Call& c) { return extreme(c, [](double a, double b) { return std::max(a, b); }); }},
      {"maximum",
       [](const Call& c) { return extreme(c, [](double a, double b) { return std::max(a, b); }); }},
      {"clamp", clamped},
      {"floor_divide", whole_quotients},
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
      {"bitwise_not",
       [](const Call& c) {
         return of_truths(c) ? mapped(c, [](double v) { return truth(v == 0); }) : Folded();
       }},
      {"bitwise_and", both},
      {"__and__", both},
      {"bitwise_or",
       [](const Call& c) {
         return of_truths(c) ? merged(c, [](double a, double b) { return truth(a != 0 || b != 0); })
                             : Folded();
       }},
  };
  return table;
}

}  // namespace

bool folds_op(std::string_view name) { return folds().contains(name); }

std::optional<Constant> fold(const Call& call, std::string_view name) {
  const auto found = folds().find(name);
  return found == folds().end() ? std::nullopt : found->second(call);
}

bool folds_shape(std::string_view name) {
  static const std::set<std::string_view> names = {"full_like", "new_full",  "new_ones",
                                                   "new_zeros", "ones_like", "zeros_like"};
  return names.contains(name);
}

std::vector<Constant> fold_parts(const Call& call, std::string_view name) {
  const Constant* const x = call.constant("self");
  if (x == nullptr || (name != "split" && name != "chunk" && name != "split_with_sizes")) return {};
  const auto dim = call.dim("dim", x->shape.size(), 0);
  if (!dim) return {};
  std::vector<Constant> parts;
  int64_t begin = 0;
  for (size_t i = 0; i < call.node().outputs.size(); ++i) {
    const TensorMeta* const meta = call.output_meta(i);
    if (meta == nullptr || meta->sizes.size() != x->shape.size()) return {};
    std::optional<Constant> part =
        slice(*x, static_cast<int64_t>(*dim), begin, begin + meta->sizes[*dim], 1);
    if (!part || part->shape != meta->sizes) return {};
    begin += meta->sizes[*dim];
    parts.push_back(std::move(*part));
  }
  return parts;
}

}  // namespace tessera::pt2
