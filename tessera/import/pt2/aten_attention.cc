// Rows (aten.h) of the ops of fused attention and of lookups in tables.
#include <fmt/format.h>

#include <algorithm>

#include "tessera/import/pt2/aten.h"

namespace tessera::pt2 {
namespace {

struct Attention {
  Value q, k, v;  // [.., heads, seq, head_dim]
  std::optional<Value> bias;
  bool causal = false;
  double scale = 0, p = 0;
  std::string key;
};

// Returns the variables of all dims that precede the heads. The op treats them as the batch.
Vars batch_of(const Value& x) {
  Vars out;
  for (size_t d = 0; d + 3 < x.dims.size(); ++d)
    out.insert(out.end(), x.dims[d].begin(), x.dims[d].end());
  return out;
}

// Adds the attention op. Its dim `heads` has the heads that keys and values have. Heads along which
// keys and values are only repeated become its dim `group`, the query heads that share a key head.
void emit_attention(Emitter& e, const Attention& a, int slot) {
  const size_t rank = a.q.dims.size();
  const Vars all = e.dims().leaves(a.q.dims[rank - 3]);
  const Vars of_k = e.read(a.k).dims, of_v = e.read(a.v).dims;
  size_t kept = all.size();
  while (kept > 0 && !holds(of_k, all[kept - 1]) && !holds(of_v, all[kept - 1])) --kept;
  const auto middle = all.begin() + static_cast<std::ptrdiff_t>(kept);
  const Vars heads(all.begin(), middle), group(middle, all.end());
  const Vars batch = batch_of(a.q), seq = a.q.dims[rank - 2], head_dim = a.q.dims[rank - 1];

  // The op reads keys and values without the repetition along the group.
  const auto memory = [&](const Value& x) {
    Value narrow = x;
    narrow.dims[rank - 3] = heads;
    return e.grouped(narrow, {{batch, "batch"},
                              {x.dims[rank - 2], "kv"},
                              {heads, "heads"},
                              {x.dims[rank - 1], "head_dim"}});
  };
  std::vector<TensorId> inputs = {e.grouped(a.q, {{batch, "batch"},
                                                  {seq, "seq"},
                                                  {heads, "heads"},
                                                  {group, "group"},
                                                  {head_dim, "head_dim"}}),
                                  memory(a.k), memory(a.v)};
  if (a.bias) {
    const size_t bias_rank = a.bias->dims.size();
    std::vector<Emitter::Group> groups;
    const auto add = [&](const Vars& vars, const char* name) {
      if (!e.dims().leaves(vars).empty()) groups.push_back({vars, name});
    };
    add(batch_of(*a.bias), "batch");
    if (bias_rank > 2 && !e.dims().leaves(a.bias->dims[bias_rank - 3]).empty()) {
      add(heads, "heads");
      add(group, "group");
    }
    add(a.bias->dims[bias_rank - 2], "seq");
    add(a.bias->dims[bias_rank - 1], "kv");
    TensorId id = e.grouped(*a.bias, groups);
    for (size_t i = 0; i < groups.size() && e.builder().ok(); ++i) {
      const std::string now = e.builder().tensor(id).dims[i].name;
      if (now != groups[i].name)
        id = e.op("rename", {id}, {{"from", now}, {"to", groups[i].name}}, "rename");
    }
    inputs.push_back(id);
  }
  const std::vector<TensorId> made = e.ops("attention", std::move(inputs),
                                           {{"causal", int64_t{a.causal}},
                                            {"scale", a.scale},
                                            {"p", a.p},
                                            {"key", a.p > 0 ? a.key : std::string()}});
  if (!made.empty()) e.define(slot, e.ungrouped(made[0], {batch, seq, heads, group, head_dim}));
}

// The meaning of a mask that is known at import: it allows all pairs (kNone), it is the causal
// mask, or it is a table of numbers that is added to the scores (kBias).
enum class Mask : uint8_t { kNone, kCausal, kBias };
Mask meaning_of(const Constant& mask, Constant& bias) {
  Constant allowed = mask;
  for (double& value : allowed.values)
    value = mask.dtype == DType::kBool ? value : (value <= -1e30 ? 0 : 1);
  bias = mask;
  if (mask.dtype == DType::kBool) {
    for (double& value : bias.values) value = value != 0 ? 0 : -1e30;
  } else {
    for (double& value : bias.values) value = std::max(value, -1e30);
  }
  const bool zero_or_masked = std::all_of(bias.values.begin(), bias.values.end(),
                                          [](double v) { return v == 0 || v <= -1e30; });
  if (all_equal(bias, 0)) return Mask::kNone;
  return zero_or_masked && is_causal_mask(allowed, false) ? Mask::kCausal : Mask::kBias;
}

Status read_mask(const Call& call, Attention& a) {
  if (!call.has("attn_mask")) return {};
  const size_t rank = a.q.dims.size();
  Lowering& lowering = call.lowering();
  Value bias;
  const Constant* known = call.constant("attn_mask");
  if (known == nullptr) known = lowering.repeated_constant(call.tensor_name("attn_mask"));
  if (known != nullptr && !known->values.empty()) {
    const Constant once = without_repeats(*known, 2);
    const Constant* const mask = &once;
    Constant numbers;
    const Mask meaning = meaning_of(*mask, numbers);
    const bool square = lowering.size(a.q, rank - 2) == lowering.size(a.k, rank - 2) &&
                        mask->shape.size() >= 2 &&
                        mask->shape.back() == lowering.size(a.k, rank - 2);
    if (meaning == Mask::kNone) return {};
    if (meaning == Mask::kCausal && square) {
      a.causal = true;
      return {};
    }
    numbers.dtype = a.q.dtype;
    bias = lowering.materialise(numbers, constant_name(call.node().name));
  } else {
    TESSERA_TRY(bias, call.value("attn_mask"));
    if (!is_floating(
            bias.dtype)) {  // 0 where the mask is true, and so low elsewhere that no weight is left
      TESSERA_TRY(bias, converted(call, bias, a.q.dtype));
      bias = scaled(call, shifted(call, bias, -1), 1e30);
    }
  }
  if (bias.dims.size() < 2) return invalid_input("expected a mask of at least 2 dims");
  if (known == nullptr) {  // its keys may be places of the sequence of its queries
    const size_t last = bias.dims.size() - 1;
    bias = lowering.retarget(bias, last, call.dims().list(lowering.size(bias, last)));
    lowering.hints().add(bias.dims[last], "kv", Sure::kRole);
  }
  for (size_t from_end = 2; from_end <= std::min(rank, bias.dims.size()); ++from_end) {
    const size_t d = bias.dims.size() - from_end;
    if (lowering.size(bias, d) != 1 && !lowering.align(a.q, rank - from_end, bias, d))
      return invalid_input("expected a mask that fits the queries");
    bias = from_end == 2 ? lowering.whole(bias, d) : bias;
  }
  bias = lowering.whole(bias, bias.dims.size() - 1);
  a.bias = std::move(bias);
  return {};
}

Status row_attention(const Call& call) {
  Attention a;
  TESSERA_TRY(a.q, call.value("query"));
  TESSERA_TRY(a.k, call.value("key"));
  TESSERA_TRY(a.v, call.value("value"));
  TESSERA_TRY(a.p, call.number("dropout_p", 0));
  TESSERA_TRY(a.causal, call.flag("is_causal", false));
  TESSERA_TRY(a.scale, call.number("scale", 0));
  TESSERA_TRY(const bool grouped, call.flag("enable_gqa", false));
  a.key = call.node().name;
  const size_t rank = a.q.dims.size();
  if (rank < 3 || a.k.dims.size() != rank || a.v.dims.size() != rank) {
    return invalid_input(
        fmt::format("expected queries, keys and values of the same dims, at least "
                    "3, found {}, {} and {}",
                    rank, a.k.dims.size(), a.v.dims.size()));
  }
  Lowering& lowering = call.lowering();
  const auto fit = [&](const Value& x, size_t x_dim, Value& y, size_t y_dim) -> Status {
    if (lowering.align(x, x_dim, y, y_dim)) return {};
    return invalid_input(
        fmt::format("expected queries, keys and values that fit, found sizes {} and {}",
                    lowering.size(x, x_dim), lowering.size(y, y_dim)));
  };
  for (Value* x : {&a.q, &a.k, &a.v}) {
    *x = lowering.whole(*x, rank - 1);
    *x = lowering.whole(*x, rank - 2);
  }
  for (size_t d = 0; d + 3 < rank; ++d) {
    TESSERA_TRY_VOID(fit(a.q, d, a.k, d));
    TESSERA_TRY_VOID(fit(a.q, d, a.v, d));
  }
  const int64_t queries = lowering.size(a.q, rank - 3), keys = lowering.size(a.k, rank - 3);
  TESSERA_TRY_VOID(fit(a.k, rank - 3, a.v, rank - 3));
  if (queries != keys) {
    // One key head is read by all query heads, as any dim of size 1 is broadcast.
    const auto cut =
        grouped || keys == 1 ? call.dims().cut(a.q.dims[rank - 3], keys) : std::nullopt;
    if (!cut || !call.dims().unify(cut->first, a.k.dims[rank - 3]))
      return invalid_input(fmt::format("expected {} query heads, found {}", keys, queries));
    for (Value* x : {&a.k, &a.v})
      x->dims[rank - 3].insert(x->dims[rank - 3].end(), cut->second.begin(), cut->second.end());
    lowering.hints().add(cut->second, "group", Sure::kRole);
    lowering.hints().add(cut->first, "heads", Sure::kRole);
  } else {
    TESSERA_TRY_VOID(fit(a.q, rank - 3, a.k, rank - 3));
    // Two hints: if keys are repeated along the innermost variable, that variable is the group, and
    // the others are the heads.
    const Vars heads = a.q.dims[rank - 3];
    lowering.hints().add(heads, "heads", Sure::kRole);
    lowering.hints().add(heads, "group", Sure::kRole);
  }
  TESSERA_TRY_VOID(fit(a.q, rank - 1, a.k, rank - 1));
  TESSERA_TRY_VOID(fit(a.k, rank - 2, a.v, rank - 2));
  TESSERA_TRY_VOID(fit(a.q, rank - 1, a.v, rank - 1));
  if (a.causal && lowering.size(a.q, rank - 2) != lowering.size(a.k, rank - 2))
    return invalid_input("expected as many keys as queries under a causal mask");
  TESSERA_TRY_VOID(read_mask(call, a));
  lowering.hints().add(batch_of(a.q), "batch", Sure::kRole);
  lowering.hints().add(a.q.dims[rank - 2], "seq", Sure::kRole);
  lowering.hints().add(a.k.dims[rank - 2], "seq", Sure::kRole);
  lowering.hints().add(a.q.dims[rank - 1], "head_dim", Sure::kRole);

  Value y = lowering.make(a.q.dims, a.q.dtype);
  lowering.step(call, "core", [a, slot = y.slot](Emitter& e) { emit_attention(e, a, slot); });
  call.set(std::move(y));
  return {};
}

// ---- lookups
// -----------------------------------------------------------------------------------------------
// Lowers a lookup whose ids are known at import and are, apart from repetitions, places in a row or
// one place: its result is a part of the table. Returns whether it did so.
Result<bool> known_rows(const Call& call, const Constant& ids, const Value& table,
                        int64_t padding) {
  if (ids.values.empty()) return false;
  const Constant once = without_repeats(ids);
  const auto first = static_cast<int64_t>(once.values[0]);
  const auto count = once.elements();
  const bool in_last = once.shape.empty() || once.shape.back() == count;
  for (int64_t i = 0; i < count; ++i) {
    if (once.values[static_cast<size_t>(i)] != static_cast<double>(first + i)) return false;
  }
  if (!in_last || first < 0 || first + count > call.lowering().size(table, 0) ||
      (padding >= first && padding < first + count))
    return false;
  TESSERA_TRY(Value rows, part_of(call, table, 0, first, count, count == 1));
  if (count > 1) call.lowering().hints().add(rows.dims[0], "seq", Sure::kRole);
  rows.dims.insert(rows.dims.begin(), ids.shape.size() - (count > 1 ? 1 : 0), Vars{});
  std::vector<int64_t> sizes = ids.shape;
  sizes.push_back(call.lowering().size(table, 1));
  call.set(call.lowering().repeated(std::move(rows), sizes));
  return true;
}

Status row_embedding(const Call& call) {
  TESSERA_TRY(Value table, call.value("weight"));
  if (table.dims.size() != 2)
    return invalid_input(fmt::format("expected a table of 2 dims, found {}", table.dims.size()));
  TESSERA_TRY(const int64_t padding, call.integer("padding_idx", -1));
  TESSERA_TRY(const bool by_frequency, call.flag("scale_grad_by_freq", false));
  if (by_frequency) {
    return invalid_input(
        "an op without a counterpart: expected scale_grad_by_freq=False, found True");
  }
  Lowering& lowering = call.lowering();
  table = lowering.whole(table, 1);
  lowering.hints().add(table.dims[1], "hidden", Sure::kWidth);
  if (const Constant* const ids = call.constant("indices")) {
    TESSERA_TRY(const bool done, known_rows(call, *ids, table, padding));
    if (done) return {};
  }
  table = lowering.whole(table, 0);
  TESSERA_TRY(const Value ids, call.value("indices"));
  if (is_floating(ids.dtype)) return invalid_input("expected ids that are integers");
  lowering.hints().add(table.dims[0], "vocab", Sure::kRole);
  std::vector<Vars> dims = ids.dims;
  dims.push_back(table.dims[1]);
  Value y = lowering.make(dims, table.dtype);
  Vars all = y.flat();
  all.insert(all.end(), table.dims[0].begin(), table.dims[0].end());
  call.dims().keep_distinct(all);
  lowering.step(call, "embedding", [ids, table, slot = y.slot](Emitter& e) {
    const Emitter::Slot rows = e.read(ids);
    const TensorId weights =
        e.grouped(table, {{table.dims[0], "vocab"}, {table.dims[1], "hidden"}});
    Vars out = rows.dims;
    const Vars features = e.dims().leaves(table.dims[1]);
    out.insert(out.end(), features.begin(), features.end());
    e.define(slot, {e.op("embedding", {rows.id, weights}), out});
  });
  if (padding >= 0) {  // row `padding` is read but gets no gradient
    Value kept = kept_ids(call, "kept", ids, lowering.size(table, 0), padding, y.dtype);
    kept.dims.emplace_back();
    TESSERA_TRY(Value stopped, pointwise(call, "padding", "stop_gradient", {y}));
    TESSERA_TRY(y, pointwise(call, "unpadded", "where", {std::move(kept), y, std::move(stopped)}));
  }
  call.set(std::move(y));
  return {};
}

// Lowers a gather: along dim `dim` takes the element of x at the index that the id says. All other
// dims of x and of the ids are equal.
Status row_gather(const Call& call) {
  const TensorMeta* const meta = call.output_meta();
  if (const Constant* const x = call.constant("self");
      x != nullptr && meta != nullptr && !x->values.empty() && all_equal(*x, x->values[0])) {
    call.set(call.lowering().filled(meta->sizes, x->values[0], x->dtype));
    return {};
  }
  TESSERA_TRY(Value x, call.value("self"));
  TESSERA_TRY(Value ids, call.value("index"));
  TESSERA_TRY(const size_t dim, call.dim("dim", x.dims.size()));
  if (is_floating(ids.dtype) || !is_floating(x.dtype)) {
    return invalid_input(fmt::format(
        "an op without a counterpart: expected ids that are integers and elements of a floating "
        "dtype, found {} and {}",
        dtype_name(ids.dtype), dtype_name(x.dtype)));
  }
  Lowering& lowering = call.lowering();
  if (ids.dims.size() != x.dims.size()) {
    return invalid_input(
        fmt::format("expected ids of {} dims, found {}", x.dims.size(), ids.dims.size()));
  }
  for (size_t d = 0; d < x.dims.size(); ++d) {
    if (d == dim || lowering.align(x, d, ids, d)) continue;
    return invalid_input(
        fmt::format("an op without a counterpart: dim {}: expected ids for all {} places, found {}",
                    d, lowering.size(x, d), lowering.size(ids, d)));
  }
  // The ids get the dims in front and behind in common with x, and their own dim as the last.
  std::vector<size_t> order;
  for (size_t d = 0; d < x.dims.size(); ++d) {
    if (d != dim) order.push_back(d);
  }
  Value in = x;
  Value at = ids;
  in.dims.clear();
  at.dims.clear();
  for (const size_t d : order) {
    in.dims.push_back(x.dims[d]);
    at.dims.push_back(ids.dims[d]);
  }
  in.dims.push_back(x.dims[dim]);
  at.dims.push_back(ids.dims[dim]);
  TESSERA_TRY(Value y, gathered(call, std::move(in), order.size(), std::move(at), order.size()));
  std::vector<Vars> dims(x.dims.size());
  for (size_t i = 0; i < order.size(); ++i) dims[order[i]] = y.dims[i];
  dims[dim] = y.dims.back();
  y.dims = std::move(dims);
  call.set(std::move(y));
  return {};
}

}  // namespace

Result<Value> gathered(const Call& call, Value x, size_t dim, Value ids, size_t shared) {
  Lowering& lowering = call.lowering();
  if (lowering.size(x, dim) < 2) return invalid_input("expected at least 2 places, found 1");
  x = lowering.whole(x, dim);
  std::vector<Vars> dims(x.dims.begin(), x.dims.begin() + static_cast<std::ptrdiff_t>(dim));
  for (size_t d = shared; d < ids.dims.size(); ++d) {
    ids = lowering.whole(ids, d);
    dims.push_back(ids.dims[d]);
  }
  dims.insert(dims.end(), x.dims.begin() + static_cast<std::ptrdiff_t>(dim) + 1, x.dims.end());
  Value y = lowering.make(dims, x.dtype);
  Vars all = x.flat();
  for (size_t d = shared; d < ids.dims.size(); ++d)
    all.insert(all.end(), ids.dims[d].begin(), ids.dims[d].end());
  call.dims().keep_distinct(all);
  lowering.hints().add(x.dims[dim], "places", Sure::kLast);
  lowering.step(call, "gather", [x, ids, dim, slot = y.slot](Emitter& e) {
    const Vars places = e.dims().leaves(x.dims[dim]);
    Vars own;  // the ids' dims that x lacks
    const Emitter::Slot at = e.read(ids);
    const Emitter::Slot read = e.read(x);
    // x is repeated along the dims that only the ids have in common with it.
    Vars wanted;
    for (const Var leaf : e.dims().leaves(x.flat())) {
      if (holds(read.dims, leaf) || holds(at.dims, leaf) || holds(places, leaf))
        wanted.push_back(leaf);
    }
    const Emitter::Slot from = e.exactly(x, wanted);
    for (const Var leaf : at.dims) {
      if (!holds(from.dims, leaf)) own.push_back(leaf);
    }
    Vars out;
    for (const Var leaf : from.dims) {
      if (holds(places, leaf)) {
        out.insert(out.end(), own.begin(), own.end());
      } else {
        out.push_back(leaf);
      }
    }
    e.define(slot, {e.op("gather", {from.id, at.id}, {{"dim", e.spell(places)}}), out});
  });
  return y;
}

Value kept_ids(const Call& call, std::string name, const Value& ids, int64_t count,
               int64_t left_out, DType dtype) {
  Lowering& lowering = call.lowering();
  const Var place = call.dims().fresh(count);
  call.dims().make_solid(place);
  call.dims().keep_unit(place);
  lowering.hints().add({place}, "ids", Sure::kLast);
  Value y = lowering.make(ids.dims, dtype);
  Vars all = y.flat();
  all.push_back(place);
  call.dims().keep_distinct(all);
  const bool hole = left_out >= 0 && left_out < count;
  lowering.step(
      call, std::move(name), [ids, place, count, left_out, hole, dtype, slot = y.slot](Emitter& e) {
        const Emitter::Slot at = e.read(ids);
        const std::string& dim = e.name(place);
        TensorId marks = e.op("fill", {},
                              {{"value", hole ? 0.0 : 1.0},
                               {"dims", fmt::format("{}={}", dim, hole ? 1 : count)},
                               {"dtype", std::string(dtype_name(dtype))}},
                              "marks");
        if (hole && count > 1) {
          marks = e.op("pad", {marks},
                       {{"dim", dim}, {"begin", left_out}, {"size", count}, {"value", 1.0}}, "pad");
        }
        e.define(slot, {e.op("gather", {marks, at.id}, {{"dim", dim}}), at.dims});
      });
  return y;
}

Rows attention_rows() {
  return {{"scaled_dot_product_attention", row_attention},
          {"embedding", row_embedding},
          {"gather", row_gather}};
}

}  // namespace tessera::pt2
