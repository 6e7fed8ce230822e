// Rows (aten.h) of the ops of products.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "tessera/base/text.h"
#include "tessera/import/pt2/aten.h"

namespace tessera::pt2 {
namespace {

// Checks whether dim `dim` of `value` has a variable that is also among `others`. If so, gives the
// dim new variables, so that the two can have different names in an op.
void make_own(const Call& call, Value& value, size_t dim, const Vars& others) {
  const Vars taken = call.dims().leaves(others);
  const Vars own = call.dims().leaves(value.dims[dim]);
  if (std::none_of(own.begin(), own.end(), [&](Var leaf) { return holds(taken, leaf); })) return;
  Vars fresh;
  for (const Var leaf : own) fresh.push_back(call.dims().fresh(call.dims().size(leaf)));
  value = call.lowering().retarget(value, dim, fresh);
}

// Returns the tensor of an operand of an einsum, and its variables in `dims`. If the value is only
// repeated along some of the `needed` dims, makes the tensor repeated along them, because a sum
// over such a dim must count each repetition.
TensorId operand(Emitter& e, const Value& x, const Vars& needed, Vars& dims) {
  Emitter::Slot slot = e.read_by_position(x);
  const bool has_units = std::any_of(slot.dims.begin(), slot.dims.end(),
                                     [&](Var leaf) { return e.dims().size(leaf) == 1; });
  const bool lacks =
      std::any_of(needed.begin(), needed.end(), [&](Var leaf) { return !holds(slot.dims, leaf); });
  if (has_units || lacks) {
    Vars order;
    for (const Var leaf : e.dims().leaves(x.flat())) {
      if (holds(slot.dims, leaf) || holds(needed, leaf)) order.push_back(leaf);
    }
    slot = e.exactly(x, order);
  }
  dims = slot.dims;
  return slot.id;
}

Vars leaves_of_dims(Emitter& e, const Value& x, const std::vector<size_t>& dims) {
  Vars out;
  for (const size_t d : dims) {
    const Vars leaves = e.dims().leaves(x.dims[d]);
    out.insert(out.end(), leaves.begin(), leaves.end());
  }
  return out;
}

void emit_contraction(Emitter& e, const Contraction& product, int slot, const Vars& result) {
  std::vector<size_t> a_summed, b_summed;
  for (const auto& [a, b] : product.summed) {
    a_summed.push_back(a);
    b_summed.push_back(b);
  }
  Vars a_dims, b_dims, bias_dims;
  const Vars summed = leaves_of_dims(e, product.a, a_summed);
  std::vector<TensorId> inputs = {operand(e, product.a, summed, a_dims),
                                  operand(e, product.b, summed, b_dims)};
  Vars y;  // without dims that neither tensor has: the result is repeated along them
  for (const Var leaf : e.dims().leaves(result)) {
    if (holds(a_dims, leaf) || holds(b_dims, leaf)) y.push_back(leaf);
  }
  std::string spec = e.spell(a_dims) + ", " + e.spell(b_dims);
  if (product.bias) {
    const Emitter::Slot bias = e.ordered(*product.bias, e.dims().leaves(product.bias->flat()));
    inputs.push_back(bias.id);
    spec += ", " + e.spell(bias.dims);
  }
  e.define(slot, {e.op("einsum", std::move(inputs), {{"spec", spec + " -> " + e.spell(y)}}), y});
}

// Makes x W^T + b with a weight [out, in] if `out_first`, else x W + b with a weight [in, out].
Result<Value> linear(const Call& call, std::string name, const Value& x, const Value& weight,
                     std::optional<Value> bias, bool out_first) {
  if (x.dims.empty() || weight.dims.size() != 2)
    return invalid_input(fmt::format("expected a weight of 2 dims, found {}", weight.dims.size()));
  const size_t last = x.dims.size() - 1, in = out_first ? 1 : 0, out = 1 - in;
  Contraction product{x, weight, {{last, in}}, {}, std::move(bias)};
  std::vector<std::pair<int, size_t>> result;
  for (size_t d = 0; d < last; ++d) result.emplace_back(0, d);
  result.emplace_back(1, out);
  call.lowering().hints().add_product(weight.dims[in], weight.dims[out]);
  const std::string& module = call.node().module;
  call.lowering().hints().add(weight.dims[out], module.substr(module.rfind('.') + 1) + "_out",
                              Sure::kLast);
  return contract(call, std::move(name), std::move(product), result);
}

Status row_linear(const Call& call) {
  TESSERA_TRY(const Value x, call.value("input"));
  TESSERA_TRY(const Value weight, call.value("weight"));
  TESSERA_TRY(std::optional<Value> bias, call.optional_value("bias"));
  TESSERA_TRY(Value y, linear(call, "linear", x, weight, std::move(bias), true));
  call.set(std::move(y));
  return {};
}

Status row_addmm(const Call& call) {
  TESSERA_TRY(const Value bias, call.value("self"));
  TESSERA_TRY(const Value x, call.value("mat1"));
  TESSERA_TRY(const Value weight, call.value("mat2"));
  TESSERA_TRY(const double alpha, call.number("alpha", 1));
  TESSERA_TRY(const double beta, call.number("beta", 1));
  if (alpha != 1 || beta != 1 || bias.dims.size() != 1)
    return invalid_input("expected a bias of one dim, and alpha and beta 1");
  TESSERA_TRY(Value y, linear(call, "addmm", x, weight, bias, false));
  call.set(std::move(y));
  return {};
}

// Names the dims of a product with two shared dims: it is taken for that of queries with keys or of
// scores with values, whose first shared dim is the batch and whose second one is the heads.
void hint_heads(const Call& call, const Contraction& product) {
  if (product.shared.size() != 2 || product.summed.size() != 1) return;
  Hints& hints = call.lowering().hints();
  // If keys are repeated along the innermost variable, that variable is the group.
  hints.add(product.a.dims[product.shared[1].first], "heads", Sure::kRole);
  hints.add(product.a.dims[product.shared[1].first], "group", Sure::kRole);
  hints.add(product.a.dims[product.summed[0].first], "head_dim", Sure::kWidth);
  for (size_t d = 0; d < product.b.dims.size(); ++d) {
    const bool own = d != product.summed[0].second && d != product.shared[0].second &&
                     d != product.shared[1].second;
    if (own) hints.add(product.b.dims[d], "head_dim", Sure::kWidth);
  }
}

Result<Value> matmul(const Call& call, Value a, Value b) {
  if (a.dims.empty() || b.dims.empty()) return invalid_input("expected tensors with dims");
  if (b.dims.size() == 2) return linear(call, "matmul", a, b, {}, false);
  const bool vector = b.dims.size() == 1, row = a.dims.size() == 1;
  if (vector) b.dims.emplace_back();
  if (row) a.dims.insert(a.dims.begin(), Vars{});
  const size_t ra = a.dims.size(), rb = b.dims.size(), rank = std::max(ra, rb);
  Contraction product{a, b, {{ra - 1, rb - 2}}, {}, {}};
  std::vector<std::pair<int, size_t>> out;
  for (size_t from_end = rank; from_end > 2; --from_end) {
    const bool in_a = from_end <= ra && call.lowering().size(a, ra - from_end) != 1;
    const bool in_b = from_end <= rb && call.lowering().size(b, rb - from_end) != 1;
    if (in_a && in_b) product.shared.emplace_back(ra - from_end, rb - from_end);
    const bool from_a = in_a || from_end > rb;
    out.emplace_back(from_a ? 0 : 1, (from_a ? ra : rb) - from_end);
  }
  out.emplace_back(0, ra - 2);
  out.emplace_back(1, rb - 1);
  hint_heads(call, product);
  TESSERA_TRY(Value y, contract(call, "matmul", std::move(product), out));
  if (vector) y.dims.pop_back();
  if (row) y.dims.erase(y.dims.end() - (vector ? 1 : 2));
  return y;
}

Status row_matmul(const Call& call) {
  TESSERA_TRY(Value a, call.value("self"));
  TESSERA_TRY(Value b, call.value(call.has("mat2") ? "mat2" : "other"));
  TESSERA_TRY(Value y, matmul(call, std::move(a), std::move(b)));
  call.set(std::move(y));
  return {};
}

// One operand of an einsum: a letter for each dim.
struct Lettered {
  Value value;
  std::string letters;
};

// Sums the dims whose letters are not among `needed`.
Lettered without_letters(const Call& call, Lettered x, const std::string& needed) {
  std::vector<size_t> over;
  std::string left;
  for (size_t d = 0; d < x.letters.size(); ++d) {
    if (needed.find(x.letters[d]) == std::string::npos) {
      over.push_back(d);
    } else {
      left += x.letters[d];
    }
  }
  if (over.empty()) return x;
  return {reduced(call, "sum", x.value, over, false, 1), left};
}

// Multiplies a and b, and sums the dims whose letters are not among `needed`.
Result<Lettered> product_of(const Call& call, Lettered a, Lettered b, const std::string& needed) {
  a = without_letters(call, std::move(a), needed + b.letters);
  b = without_letters(call, std::move(b), needed + a.letters);
  Contraction product{a.value, b.value, {}, {}, {}};
  std::vector<std::pair<int, size_t>> out;
  std::string letters;
  for (size_t d = 0; d < a.letters.size(); ++d) {
    const size_t in_b = b.letters.find(a.letters[d]);
    const bool kept = needed.find(a.letters[d]) != std::string::npos;
    if (in_b != std::string::npos) (kept ? product.shared : product.summed).emplace_back(d, in_b);
    if (!kept) continue;
    out.emplace_back(0, d);
    letters += a.letters[d];
  }
  for (size_t d = 0; d < b.letters.size(); ++d) {
    if (a.letters.find(b.letters[d]) != std::string::npos) continue;
    out.emplace_back(1, d);
    letters += b.letters[d];
  }
  hint_heads(call, product);
  TESSERA_TRY(Value y, contract(call, "einsum", std::move(product), out));
  return Lettered{std::move(y), letters};
}

// Returns the letters of the operands and of the result of "ab,bc->ac"; of "ab,bc" those of the result
// are the letters that stand once, in the order of the alphabet.
std::pair<std::vector<std::string>, std::string> letters_of(std::string equation) {
  std::erase(equation, ' ');
  const size_t arrow = equation.find("->");
  const std::string left = equation.substr(0, arrow);
  std::string result;
  if (arrow != std::string::npos) {
    result = equation.substr(arrow + 2);
  } else {
    for (char letter : std::set<char>(left.begin(), left.end())) {
      if (letter != ',' && std::count(left.begin(), left.end(), letter) == 1) result += letter;
    }
  }
  return {split_text(left, ','), result};
}

// Lowers an einsum of letters, each at most once in an operand, by products from left to right.
Status row_einsum(const Call& call) {
  TESSERA_TRY(const std::vector<Value> xs, call.values("tensors"));
  const std::string equation = call.text("equation", "");
  const auto [operands, result] = letters_of(equation);
  const auto known = [](const std::string& letters) {
    const std::set<char> once(letters.begin(), letters.end());
    return once.size() == letters.size() && std::all_of(once.begin(), once.end(), [](char c) {
             return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
           });
  };
  bool fits = operands.size() == xs.size() && known(result);
  for (size_t i = 0; fits && i < xs.size(); ++i) {
    fits =
        known(operands[i]) && operands[i].size() == xs[i].dims.size() && is_floating(xs[i].dtype);
  }
  if (!fits) {
    return invalid_input(
        fmt::format("an op without a counterpart: expected an einsum of floating operands with a "
                    "letter for each "
                    "dim, each once in an operand, found '{:.60}'",
                    equation));
  }
  Lettered y{xs[0], operands[0]};
  for (size_t i = 1; i < xs.size(); ++i) {
    std::string needed = result;
    for (size_t later = i + 1; later < xs.size(); ++later) needed += operands[later];
    TESSERA_TRY(y, product_of(call, std::move(y), {xs[i], operands[i]}, needed));
  }
  y = without_letters(call, std::move(y), result);
  Value out = y.value;
  out.dims.clear();
  for (const char letter : result) {
    const size_t at = y.letters.find(letter);
    if (at == std::string::npos)
      return invalid_input(fmt::format("expected a dim '{}' of an operand, found none", letter));
    out.dims.push_back(y.value.dims[at]);
  }
  call.set(std::move(out));
  return {};
}

// Lowers beta self + alpha (batch1 batch2).
Status row_baddbmm(const Call& call) {
  TESSERA_TRY(const Value bias, call.value("self"));
  TESSERA_TRY(Value a, call.value("batch1"));
  TESSERA_TRY(Value b, call.value("batch2"));
  TESSERA_TRY(const double alpha, call.number("alpha", 1));
  TESSERA_TRY(const double beta, call.number("beta", 1));
  TESSERA_TRY(const Value product, matmul(call, std::move(a), std::move(b)));
  TESSERA_TRY(Value y, pointwise(call, "add", "add",
                                 {scaled(call, product, alpha), scaled(call, bias, beta)}));
  call.set(std::move(y));
  return {};
}

}  // namespace

Result<Value> contract(const Call& call, std::string name, Contraction product,
                       const std::vector<std::pair<int, size_t>>& out) {
  Lowering& lowering = call.lowering();
  const auto matched = [&](const std::vector<std::pair<size_t, size_t>>& pairs) -> Status {
    for (const auto& [a, b] : pairs) {
      if (lowering.align(product.a, a, product.b, b)) continue;
      if (lowering.align(product.b, b, product.a, a)) continue;
      return invalid_input(
          fmt::format("expected operands whose dims {} and {} fit, found {} and {}", a, b,
                      lowering.size(product.a, a), lowering.size(product.b, b)));
    }
    return {};
  };
  TESSERA_TRY_VOID(matched(product.shared));
  TESSERA_TRY_VOID(matched(product.summed));
  // A dim of b that is neither summed nor shared must not have a variable of a.
  std::vector<size_t> b_known;
  for (const auto* pairs : {&product.summed, &product.shared}) {
    for (const auto& pair : *pairs) b_known.push_back(pair.second);
  }
  for (size_t d = 0; d < product.b.dims.size(); ++d) {
    if (std::find(b_known.begin(), b_known.end(), d) == b_known.end())
      make_own(call, product.b, d, product.a.flat());
  }
  std::vector<Vars> dims;
  for (const auto& [operand_index, dim] : out)
    dims.push_back((operand_index == 0 ? product.a : product.b).dims[dim]);
  if (product.bias) {
    Value y{-1, {dims.back()}, product.a.dtype, {}};
    if (product.bias->dims.size() != 1 || !lowering.align(y, 0, *product.bias, 0))
      return invalid_input(fmt::format("expected a bias of {}", call.dims().size(dims.back())));
  }
  // No two dims of a may be the same, so that no summed dim is a dim of the result.
  call.dims().keep_distinct(product.a.flat());
  Value y = lowering.make(dims, product.a.dtype);
  lowering.step(call, std::move(name),
                [product = std::move(product), flat = y.flat(), slot = y.slot](Emitter& e) {
                  emit_contraction(e, product, slot, flat);
                });
  return y;
}

Rows product_rows() {
  return {{"linear", row_linear}, {"addmm", row_addmm}, {"matmul", row_matmul},
          {"mm", row_matmul},     {"bmm", row_matmul},  {"baddbmm", row_baddbmm},
          {"einsum", row_einsum}};
}

}  // namespace tessera::pt2
