// Rows (aten.h) of ops on integers and truths that depend on the inputs, and of ops that read places
// which such integers name. Their tensors in the graph are int64, a truth is 0 or 1 there.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "tessera/import/pt2/aten.h"

namespace tessera::pt2 {
namespace {

// Returns the error of an op on operands of a dtype for which there are no ops in the graph.
tl::unexpected<Error> expected_integers(DType found) {
  return invalid_input(fmt::format(
      "an op without a counterpart: expected integers or truths, found {}", dtype_name(found)));
}

// Makes a truth for each element: whether it equals `number`.
Result<Value> equals(const Call& call, std::string name, const Value& x, double number) {
  if (is_floating(x.dtype)) return expected_integers(x.dtype);
  Value y = call.lowering().make(x.dims, DType::kBool);
  call.lowering().step(call, std::move(name), [x, number, slot = y.slot](Emitter& e) {
    const Emitter::Slot in = e.read(x);
    const TensorId other = e.op(
        "fill", {}, {{"value", number}, {"dims", ""}, {"dtype", std::string("int64")}}, "number");
    e.define(slot, {e.op("equal", {in.id, other}), in.dims});
  });
  return y;
}

// Makes whether the operands `self` and `other` of the node, of which one may be a number, are equal.
Result<Value> equality(const Call& call) {
  for (const auto& [number, tensor] : {std::pair("other", "self"), std::pair("self", "other")}) {
    const auto known = call.scalar(number);
    if (!known) continue;
    TESSERA_TRY(const Value x, call.value(tensor));
    return equals(call, "equal", x, *known);
  }
  TESSERA_TRY(Value a, call.value("self"));
  TESSERA_TRY(Value b, call.value("other"));
  for (const Value* x : {&a, &b}) {
    if (is_floating(x->dtype)) return expected_integers(x->dtype);
  }
  TESSERA_TRY(Value y, pointwise(call, "equal", "equal", {std::move(a), std::move(b)}));
  y.dtype = DType::kBool;
  return y;
}

Status row_eq(const Call& call) {
  TESSERA_TRY(Value y, equality(call));
  call.set(std::move(y));
  return {};
}

Status row_ne(const Call& call) {
  TESSERA_TRY(const Value same, equality(call));
  TESSERA_TRY(Value y, equals(call, "not", same, 0));
  call.set(std::move(y));
  return {};
}

Result<Value> truths(const Call& call, const Value& x) {
  return as_integers(call, x, DType::kBool);
}

Status row_not(const Call& call) {
  TESSERA_TRY(const Value x, call.value("self"));
  const TensorMeta* const meta = call.output_meta();
  if (meta == nullptr || meta->dtype != DType::kBool) return expected_integers(x.dtype);
  TESSERA_TRY(Value y, equals(call, "not", x, 0));
  call.set(std::move(y));
  return {};
}

// Makes the product (and) or, negated twice, the product of the opposites (or) of two truths.
Status both_truths(const Call& call, bool any) {
  const TensorMeta* const meta = call.output_meta();
  TESSERA_TRY(Value a, call.value("self"));
  TESSERA_TRY(Value b, call.value("other"));
  if (meta == nullptr || meta->dtype != DType::kBool) return expected_integers(a.dtype);
  for (Value* x : {&a, &b}) {
    TESSERA_TRY(*x, truths(call, *x));
    if (!any) continue;
    TESSERA_TRY(*x, equals(call, "not", *x, 0));
  }
  TESSERA_TRY(Value y, pointwise(call, "and", "mul", {std::move(a), std::move(b)}));
  if (any) {
    TESSERA_TRY(y, equals(call, "or", y, 0));
  }
  call.set(std::move(y));
  return {};
}
Status row_and(const Call& call) { return both_truths(call, false); }
Status row_or(const Call& call) { return both_truths(call, true); }

// Makes the running sums of x along a dim.
Value running_sums(const Call& call, const Value& given, size_t dim) {
  const Value x = call.lowering().whole(given, dim);
  Value y = call.lowering().make(x.dims, x.dtype);
  call.lowering().step(call, "cumsum", [x, dim, slot = y.slot](Emitter& e) {
    const Vars along = e.dims().leaves(x.dims[dim]);
    Vars order = e.read(x).dims;
    for (const Var leaf : along) {
      if (!holds(order, leaf)) order.push_back(leaf);
    }
    const Emitter::Slot in = e.exactly(x, order);
    e.define(slot, {e.op("cumsum", {in.id}, {{"dim", e.spell(along)}}), in.dims});
  });
  return y;
}

Status row_cumsum(const Call& call) {
  TESSERA_TRY(Value x, call.value("self"));
  TESSERA_TRY(x, in_result_dtype(call, x));
  TESSERA_TRY(const size_t dim, call.dim("dim", x.dims.size()));
  if (call.lowering().size(x, dim) == 1) {
    call.set(std::move(x));
    return {};
  }
  call.set(running_sums(call, x, dim));
  return {};
}

// Makes the place of the largest element of x along a dim of n places, which remains with size 1 if
// `keep`: n less the largest count, where the places that hold the largest element have the counts
// n, n - 1, ... from the first place on, and the others have 0. So of equal elements the first is found.
Result<Value> first_largest(const Call& call, const Value& given, size_t dim, bool keep) {
  Lowering& lowering = call.lowering();
  const Value x = lowering.whole(given, dim);
  const int64_t places = lowering.size(x, dim);
  const Value most = largest(call, "most", x, {dim}, true);
  TESSERA_TRY(Value is_most, pointwise(call, "is_most", "equal", {x, most}));
  const Value one = lowering.filled({places}, 1, DType::kInt64);
  Value counts =
      shifted(call, scaled(call, running_sums(call, one, 0), -1), static_cast<double>(places + 1));
  counts.dims.insert(counts.dims.end(), x.dims.size() - 1 - dim, Vars{});
  TESSERA_TRY(const Value found,
              pointwise(call, "found", "where", {std::move(is_most), std::move(counts)},
                        {{"otherwise", 0.0}}));
  return shifted(call, scaled(call, largest(call, "first", found, {dim}, keep), -1),
                 static_cast<double>(places));
}

Status row_argmax(const Call& call) {
  TESSERA_TRY(const Value x, call.value("self"));
  if (!call.has("dim"))
    return invalid_input("an op without a counterpart: expected a dim, found none");
  TESSERA_TRY(const size_t dim, call.dim("dim", x.dims.size()));
  TESSERA_TRY(const bool keep, call.flag("keepdim", false));
  TESSERA_TRY(Value y, first_largest(call, x, dim, keep));
  call.set(std::move(y));
  return {};
}

// Lowers max over a dim, which makes the largest elements and their places. Only the first of equal
// elements gets the gradient.
Status row_max(const Call& call) {
  TESSERA_TRY(const Value x, call.value("self"));
  if (!call.has("dim") || !is_floating(x.dtype) || x.dims.empty()) {
    return invalid_input(
        "an op without a counterpart: expected the largest floating elements along a dim");
  }
  TESSERA_TRY(const size_t dim, call.dim("dim", x.dims.size()));
  TESSERA_TRY(const bool keep, call.flag("keepdim", false));
  TESSERA_TRY(Value places, first_largest(call, x, dim, false));
  Value ids = places;
  TESSERA_TRY(Value y, gathered(call, x, dim, std::move(ids), x.dims.size() - 1));
  for (Value* one : {&y, &places}) {
    if (keep) one->dims.insert(one->dims.begin() + static_cast<std::ptrdiff_t>(dim), Vars{});
  }
  call.set(std::move(y));
  call.set(std::move(places), 1);
  return {};
}

// ---- places that integers name
// -----------------------------------------------------------------------------------------------
// Makes the elements of x along dim `dim` at places that are known at import. Returns nothing if they
// are not one place, or places in a row.
Result<std::optional<Value>> known_places(const Call& call, const Value& x, size_t dim,
                                          const Constant& places) {
  const int64_t size = call.lowering().size(x, dim);
  if (places.shape.size() != 1 || places.values.empty()) return std::optional<Value>();
  double first = places.values[0];
  if (first < 0) first += static_cast<double>(size);
  for (size_t i = 0; i < places.values.size(); ++i) {
    const double at =
        places.values[i] < 0 ? places.values[i] + static_cast<double>(size) : places.values[i];
    if (at != first + static_cast<double>(i) || at < 0 || at >= static_cast<double>(size))
      return std::optional<Value>();
  }
  TESSERA_TRY(Value y, part_of(call, x, dim, static_cast<int64_t>(first), places.elements()));
  return std::optional(std::move(y));
}

// Makes x[a, b, ..] where each index counts all places of its dim along a dim of its own (as a mask is
// read by arange(n)[:, None] and arange(m)[None, :]): a view of x. Returns nothing if it is another
// index.
std::optional<Value> crossed(const Call& call, const Value& x, const TensorsArg& indices) {
  const TensorMeta* const meta = call.output_meta();
  Lowering& lowering = call.lowering();
  if (meta == nullptr || indices.names.empty()) return std::nullopt;
  const size_t behind = x.dims.size() - indices.names.size();
  if (meta->sizes.size() < behind) return std::nullopt;
  const size_t rank = meta->sizes.size() - behind;
  Value y = x;
  y.dims.assign(rank, Vars{});
  std::set<size_t> taken;
  for (size_t d = 0; d < indices.names.size(); ++d) {
    const Lowering::Item* const item = lowering.item(indices.names[d]);
    const auto* const known = item == nullptr ? nullptr : std::get_if<Constant>(item);
    if (known == nullptr || known->shape.size() > rank) return std::nullopt;
    const Constant once = without_repeats(*known);
    if (!counts_up(once) || once.elements() != lowering.size(x, d)) return std::nullopt;
    for (size_t p = 0; p < once.shape.size(); ++p) {
      if (once.shape[p] != once.elements() || once.elements() == 1) continue;
      const size_t at = rank - once.shape.size() + p;
      if (!taken.insert(at).second) return std::nullopt;
      y.dims[at] = x.dims[d];
    }
  }
  y.dims.insert(y.dims.end(), x.dims.end() - static_cast<std::ptrdiff_t>(behind), x.dims.end());
  return lowering.repeated(std::move(y), meta->sizes);
}

// Lowers x[:, .., ids, ..]: an index into one dim, after dims that are not indexed or whose index
// counts from 0 up, as x[arange(n), ids] for n samples.
Status row_index(const Call& call) {
  TESSERA_TRY(Value x, call.value("self"));
  const auto given = call.node().arguments.find("indices");
  const auto* const names =
      given == call.node().arguments.end() ? nullptr : std::get_if<TensorsArg>(&given->second);
  if (names == nullptr || names->names.size() > x.dims.size())
    return invalid_input("argument 'indices': expected at most one tensor for each dim");
  if (std::optional<Value> y = crossed(call, x, *names)) {
    call.set(std::move(*y));
    return {};
  }
  Lowering& lowering = call.lowering();
  std::optional<size_t> indexed;
  std::vector<size_t> counted;
  for (size_t d = 0; d < names->names.size(); ++d) {
    if (names->names[d].empty()) continue;
    const Lowering::Item* const item = lowering.item(names->names[d]);
    const auto* const known = item == nullptr ? nullptr : std::get_if<Constant>(item);
    const bool counts = known != nullptr && known->shape.size() == 1 && counts_up(*known) &&
                        known->elements() == lowering.size(x, d) && d + 1 < names->names.size();
    if (counts) {
      counted.push_back(d);
    } else if (indexed) {
      return invalid_input("an op without a counterpart: expected an index into one dim");
    } else {
      indexed = d;
    }
  }
  // Without indices that count, the dims in front of the indexed one are as they were; with them,
  // all dims in front must count, so that the result has its dims in their order.
  if (!indexed || (!counted.empty() && counted.size() != *indexed))
    return invalid_input("an op without a counterpart: expected an index into one dim");
  const std::string& tensor = names->names[*indexed];
  const Lowering::Item* const item = lowering.item(tensor);
  if (const auto* known = item == nullptr ? nullptr : std::get_if<Constant>(item);
      known != nullptr && counted.empty()) {
    TESSERA_TRY(std::optional<Value> y, known_places(call, x, *indexed, *known));
    if (y) {
      call.set(std::move(*y));
      return {};
    }
  }
  TESSERA_TRY(Value ids, lowering.value_of(tensor));
  if (is_floating(ids.dtype) || ids.dtype == DType::kBool || ids.dims.empty() ||
      ids.dims.size() < counted.size()) {
    return invalid_input(
        fmt::format("an op without a counterpart: expected an index of integers, "
                    "found one of {}",
                    dtype_name(ids.dtype)));
  }
  for (size_t i = 0; i < counted.size(); ++i) {
    if (lowering.align(x, counted[i], ids, i)) continue;
    return invalid_input(fmt::format("expected an index for each of {} places, found {}",
                                     lowering.size(x, counted[i]), lowering.size(ids, i)));
  }
  TESSERA_TRY(Value y, gathered(call, x, *indexed, std::move(ids), counted.size()));
  call.set(std::move(y));
  return {};
}

// Lowers an op in place that writes `value` (fill_) or the elements of `src` (copy_) into all
// elements of a tensor.
Status row_copy(const Call& call) {
  TESSERA_TRY(Value x, call.value("src"));
  const TensorMeta* const meta = call.output_meta();
  if (meta == nullptr || meta->sizes.size() < x.dims.size())
    return invalid_input("expected an output with the dims of the source, found none");
  TESSERA_TRY(x, in_result_dtype(call, x));
  x.dims.insert(x.dims.begin(), meta->sizes.size() - x.dims.size(), Vars{});
  call.set(call.lowering().repeated(std::move(x), meta->sizes));
  return {};
}

Status row_fill(const Call& call) {
  const TensorMeta* const meta = call.output_meta();
  TESSERA_TRY(const double value, call.number("value"));
  if (meta == nullptr) return invalid_input("expected an output with a shape, found none");
  call.set(call.lowering().filled(meta->sizes, value, meta->dtype));
  return {};
}

}  // namespace

Result<Value> as_integers(const Call& call, const Value& x, DType dtype) {
  if (x.dtype == dtype) return x;
  if (is_floating(x.dtype)) {
    return invalid_input(
        fmt::format("an op without a counterpart: expected no conversion of {} to {}",
                    dtype_name(x.dtype), dtype_name(dtype)));
  }
  Value y = x;
  if (dtype == DType::kBool) {
    TESSERA_TRY(const Value zero, equals(call, "is_zero", x, 0));
    TESSERA_TRY(y, equals(call, "is_not_zero", zero, 0));
  }
  y.dtype = dtype;
  return y;
}

Value integer_sum(const Call& call, const std::string& kind, const Value& x, double by) {
  Value y = call.lowering().make(x.dims, x.dtype);
  call.lowering().step(call, kind, [kind, x, by, slot = y.slot](Emitter& e) {
    const Emitter::Slot in = e.read(x);
    const TensorId number =
        e.op("fill", {}, {{"value", by}, {"dims", ""}, {"dtype", std::string("int64")}}, "number");
    e.define(slot, {e.op(kind, {in.id, number}), in.dims});
  });
  return y;
}

Rows integer_rows() {
  return {{"eq", row_eq},           {"ne", row_ne},           {"logical_not", row_not},
          {"bitwise_not", row_not}, {"logical_and", row_and}, {"bitwise_and", row_and},
          {"__and__", row_and},     {"logical_or", row_or},   {"bitwise_or", row_or},
          {"__or__", row_or},       {"cumsum", row_cumsum},   {"argmax", row_argmax},
          {"max", row_max},         {"index", row_index},     {"copy_", row_copy},
          {"fill_", row_fill}};
}

}  // namespace tessera::pt2
