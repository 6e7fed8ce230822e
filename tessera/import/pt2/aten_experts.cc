// Rows (aten.h) of a mixture of experts: top k, and the ops on routed tensors (routing.h).
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "tessera/import/pt2/aten.h"

namespace tessera::pt2 {

Vars Routing::tokens() const {
  Vars out = batch;
  out.insert(out.end(), seq.begin(), seq.end());
  return out;
}

Vars Routing::slots() const {
  Vars out = experts;
  out.insert(out.end(), batch.begin(), batch.end());
  out.insert(out.end(), capacity.begin(), capacity.end());
  return out;
}

namespace {

using Kind = Routed::Kind;

// Returns the graph's tensor of x [tokens, .. last], or of a tensor [tokens, choice], by name.
TensorId by_token(Emitter& e, const Routing& routing, const Value& x, const Vars& last,
                  const char* name) {
  return e.grouped(x, {{routing.batch, "batch"}, {routing.seq, "seq"}, {last, name}});
}

TensorId slot_of(Emitter& e, const Routing& routing) {
  return by_token(e, routing, routing.slot, routing.choice, "choice");
}

Attributes sizes_of(Emitter& e, const Routing& routing) {
  return {{"experts", e.dims().size(routing.experts)},
          {"capacity", e.dims().size(routing.capacity)}};
}

// Returns the dims of a row: those after the first, joined.
Vars features_of(const Value& x) {
  Vars out;
  for (size_t d = 1; d < x.dims.size(); ++d)
    out.insert(out.end(), x.dims[d].begin(), x.dims[d].end());
  return out;
}

// Lowers the k largest elements of the last dim. Their places are routed.
Status row_topk(const Call& call) {
  TESSERA_TRY(Value x, call.value("self"));
  TESSERA_TRY(const int64_t k, call.integer("k"));
  TESSERA_TRY(const size_t dim, call.dim("dim", x.dims.size(), -1));
  TESSERA_TRY(const bool most, call.flag("largest", true));
  Lowering& lowering = call.lowering();
  if (!most || x.dims.size() < 2 || dim + 1 != x.dims.size() || !is_floating(x.dtype) || k < 1 ||
      k > lowering.size(x, dim)) {
    return invalid_input(
        "an op without a counterpart: expected the largest floating elements of the last of "
        "several "
        "dims");
  }
  x = lowering.whole(x, dim);
  Routing routing;
  Vars tokens;
  for (size_t d = 0; d < dim; ++d) {
    const Vars leaves = call.dims().leaves(x.dims[d]);
    tokens.insert(tokens.end(), leaves.begin(), leaves.end());
  }
  if (tokens.empty()) return invalid_input("an op without a counterpart: expected several tokens");
  routing.batch = {tokens.front()};
  routing.seq = Vars(tokens.begin() + 1, tokens.end());
  routing.experts = x.dims[dim];
  const auto named = [&](int64_t size, const char* name) {
    const Var var = call.dims().fresh(size);
    call.dims().make_solid(var);
    lowering.hints().add({var}, name, Sure::kRole);
    return Vars{var};
  };
  lowering.hints().add(routing.batch, "batch", Sure::kRole);
  lowering.hints().add(routing.seq, "seq", Sure::kRole);
  lowering.hints().add(routing.experts, "experts", Sure::kRole);
  routing.choice = named(k, "choice");
  routing.capacity = named(call.dims().size(routing.seq), "capacity");
  routing.rows = call.dims().size(tokens) * k;
  routing.slot = lowering.make({routing.batch, routing.seq, routing.choice}, DType::kInt64);
  std::vector<Vars> dims = x.dims;
  dims[dim] = routing.choice;
  Value values = lowering.make(dims, x.dtype);
  Vars together = x.flat();
  together.insert(together.end(), routing.choice.begin(), routing.choice.end());
  together.insert(together.end(), routing.capacity.begin(), routing.capacity.end());
  call.dims().keep_distinct(together);
  lowering.step(call, "route", [x, routing, k, slot = values.slot](Emitter& e) {
    const std::vector<TensorId> made = e.ops(
        "moe_route", {by_token(e, routing, x, routing.experts, "experts")},
        {{"top_k", k}, {"capacity", e.dims().size(routing.capacity)}, {"normalize", int64_t{0}}});
    if (made.size() < 2) return;
    const std::vector<Vars> lists = {routing.batch, routing.seq, routing.choice};
    e.define(routing.slot.slot, e.ungrouped(made[0], lists));
    e.define(slot, e.ungrouped(made[1], lists));
  });
  call.set(std::move(values));
  if (call.node().outputs.size() > 1 && !call.node().outputs[1].empty())
    lowering.set_routed(call.node().outputs[1], {Kind::kIds, lowering.add_routing(routing)});
  return {};
}

// ---- routed tensors
// -----------------------------------------------------------------------------------------------
// A node that reads routed tensors.
class RoutedNode {
 public:
  RoutedNode(const Call& call, std::string_view op) : call_(call), op_(op) {}

  Status lower() {
    const Node& node = call_.node();
    for (const auto& [argument, given] : node.arguments) {
      for (const std::string& tensor : tensors_of(given)) {
        const Routed* const one = call_.lowering().routed(tensor);
        if (one == nullptr) continue;
        if (first_ == nullptr) first_ = one;
        if (one->routing != first_->routing) return refused();
        (argument == "indices" ? index_ : argument == "offs" ? offsets_ : operand_) = one;
      }
    }
    if (first_ == nullptr) return refused();
    routing_ = call_.lowering().routing(first_->routing);
    return chosen();
  }

 private:
  tl::unexpected<Error> refused() const {
    return invalid_input("an op without a counterpart: it reads what a top k or a sort has chosen");
  }

  bool is(const Routed* one, Kind kind) const { return one != nullptr && one->kind == kind; }

  Status routed(Kind kind, Value value = {}, size_t output = 0) const {
    const std::vector<std::string>& outputs = call_.node().outputs;
    if (output < outputs.size() && !outputs[output].empty())
      call_.lowering().set_routed(outputs[output], {kind, first_->routing, std::move(value)});
    return {};
  }

  Status chosen() {
    static const std::set<std::string_view> same = {"to",    "_to_copy", "type_as",   "clone",
                                                    "alias", "detach",   "contiguous"};
    if (operand_ != nullptr && same.contains(op_) && operand_->kind != Kind::kRows)
      return routed(operand_->kind, operand_->value);
    if (op_ == "_assert_tensor_metadata") return {};
    if (op_ == "view" || op_ == "reshape" || op_ == "flatten" || op_ == "_unsafe_view")
      return view();
    if (op_ == "sort" && is(operand_, Kind::kIds)) return sort();
    if ((op_ == "floor_divide" || op_ == "div") && is(operand_, Kind::kOrder)) return tokens();
    if (op_ == "histc" && is(operand_, Kind::kSortedIds)) return counts();
    if (op_ == "cumsum" && is(operand_, Kind::kCounts)) return routed(Kind::kOffsets);
    if (op_ == "empty_like" && is(operand_, Kind::kOrder)) return routed(Kind::kEmpty);
    if (op_ == "index_put_" && is(operand_, Kind::kEmpty) && is(index_, Kind::kOrder))
      return inverse();
    if (op_ == "index" && index_ != nullptr) return index();
    if (op_ == "sum" && is(operand_, Kind::kChoices)) return combine();
    if (offsets_ != nullptr) return product();
    if (is(operand_, Kind::kRows) && index_ == nullptr) return by_rows();
    return refused();
  }

  // Views of ids as one list, and of the rows in the order of tokens as rows by token.
  Status view() {
    const TensorMeta* const meta = call_.output_meta();
    if (meta == nullptr) return refused();
    const std::vector<int64_t>& sizes = meta->sizes;
    if (is(operand_, Kind::kIds) && sizes == std::vector<int64_t>{routing_.rows})
      return routed(Kind::kIds);
    const DimTable& dims = call_.dims();
    if (is(operand_, Kind::kChoices) &&
        sizes == std::vector<int64_t>{dims.size(routing_.tokens()), dims.size(routing_.choice),
                                      dims.size(features_of(operand_->value))})
      return routed(Kind::kChoices, operand_->value);
    return refused();
  }

  Status sort() {
    TESSERA_TRY(const bool descending, call_.flag("descending", false));
    const TensorMeta* const meta = call_.output_meta();
    if (descending || meta == nullptr || meta->sizes != std::vector<int64_t>{routing_.rows})
      return refused();
    TESSERA_TRY_VOID(routed(Kind::kSortedIds));
    return routed(Kind::kOrder, {}, 1);
  }

  Status tokens() {
    const auto by = call_.scalar("other");
    const bool whole = op_ == "floor_divide" || call_.text("rounding_mode", "") == "floor";
    if (!whole || by != static_cast<double>(call_.dims().size(routing_.choice))) return refused();
    return routed(Kind::kTokens);
  }

  Status counts() {
    TESSERA_TRY(const int64_t bins, call_.integer("bins", 100));
    TESSERA_TRY(const double least, call_.number("min", 0));
    TESSERA_TRY(const double most, call_.number("max", 0));
    const int64_t experts = call_.dims().size(routing_.experts);
    if (bins != experts || least != 0 || most != static_cast<double>(experts - 1)) return refused();
    return routed(Kind::kCounts);
  }

  Status inverse() {
    const Constant* const values = call_.constant("values");
    if (values == nullptr || !counts_up(*values) || values->elements() != routing_.rows)
      return refused();
    return routed(Kind::kInverse);
  }

  // Makes dim 0 of x the dims `to`. Returns an error if it is another dim.
  Status begin_with(Value& x, const Vars& to) const {
    const Value wanted{-1, {to}, x.dtype, {}};
    if (!x.dims.empty() && call_.lowering().align(wanted, 0, x, 0)) return {};
    return invalid_input(fmt::format("expected {} rows, found {}", call_.dims().size(to),
                                     x.dims.empty() ? 0 : call_.lowering().size(x, 0)));
  }

  // Makes a tensor by slots of the node's operand, whose first dim is that of `to`; the step `write` adds
  // the op, which makes [experts, batch, capacity, ..].
  template <class Write>
  Status by_slots(const Value& x, const Vars& features, const char* name, Write write) const {
    Lowering& lowering = call_.lowering();
    std::vector<Vars> dims = {routing_.slots()};
    if (!features.empty()) dims.push_back(features);
    Value y = lowering.make(dims, x.dtype);
    lowering.step(call_, name, [routing = routing_, features, write, slot = y.slot](Emitter& e) {
      const TensorId id = write(e);
      std::vector<Vars> lists = {routing.experts, routing.batch, routing.capacity};
      if (!features.empty()) lists.push_back(features);
      e.define(slot, e.ungrouped(id, lists));
    });
    return routed(Kind::kRows, std::move(y));
  }

  Status index() {
    const auto names = std::get<TensorsArg>(call_.node().arguments.at("indices")).names;
    if (names.size() != 1) return refused();
    if (is(index_, Kind::kInverse) && is(operand_, Kind::kRows) && operand_->value.dims.size() == 2)
      return routed(Kind::kChoices, operand_->value);
    if (operand_ != nullptr) return refused();
    TESSERA_TRY(Value x, call_.value("self"));
    if (is(index_, Kind::kTokens) &&
        x.dims.size() == 2) {  // the tokens, to the slots of their experts
      TESSERA_TRY_VOID(begin_with(x, routing_.tokens()));
      x = call_.lowering().whole(x, 1);
      return by_slots(x, x.dims[1], "dispatch", [routing = routing_, x](Emitter& e) {
        return e.op("moe_dispatch",
                    {by_token(e, routing, x, x.dims[1], "hidden"), slot_of(e, routing)},
                    sizes_of(e, routing));
      });
    }
    if (is(index_, Kind::kOrder) && x.dims.size() == 1) {  // a number for each choice
      Vars rows = routing_.tokens();
      rows.insert(rows.end(), routing_.choice.begin(), routing_.choice.end());
      TESSERA_TRY_VOID(begin_with(x, rows));
      return by_slots(x, {}, "weights", [routing = routing_, x](Emitter& e) {
        return e.op("moe_slot_weight",
                    {by_token(e, routing, x, routing.choice, "choice"), slot_of(e, routing)},
                    sizes_of(e, routing));
      });
    }
    if (is(index_, Kind::kSortedIds)) {  // something of each expert: the same for all its slots
      TESSERA_TRY_VOID(begin_with(x, routing_.experts));
      x.dims[0] = routing_.slots();
      call_.dims().keep_distinct(x.flat());
      return routed(Kind::kRows, std::move(x));
    }
    return refused();
  }

  // Multiplies the rows of each expert with its matrix [in, out].
  Status product() {
    if (!is(offsets_, Kind::kOffsets) || !is(operand_, Kind::kRows)) return refused();
    TESSERA_TRY(const Value weight, call_.value(call_.has("weight") ? "weight" : "mat2"));
    const Value& x = operand_->value;
    if (x.dims.size() != 2 || weight.dims.size() != 3 || call_.has("bias")) return refused();
    Value slots = x;
    Vars places = routing_.batch;
    places.insert(places.end(), routing_.capacity.begin(), routing_.capacity.end());
    slots.dims = {routing_.experts, places, x.dims[1]};
    call_.lowering().hints().add_product(weight.dims[1], weight.dims[2]);
    TESSERA_TRY(Value y, contract(call_, "product", {slots, weight, {{2, 1}}, {{0, 0}}, {}},
                                  {{0, 0}, {0, 1}, {1, 2}}));
    y.dims = {routing_.slots(), y.dims[2]};
    return routed(Kind::kRows, std::move(y));
  }

  // Adds up what the experts have made of each token.
  Status combine() {
    TESSERA_TRY(const std::vector<size_t> over, call_.dim_list("dim", 3));
    TESSERA_TRY(const bool keep, call_.flag("keepdim", false));
    if (over != std::vector<size_t>{1} || keep) return refused();
    Lowering& lowering = call_.lowering();
    const Value x = operand_->value;
    Value y = lowering.make({routing_.tokens(), x.dims[1]}, x.dtype);
    lowering.step(call_, "combine", [routing = routing_, x, slot = y.slot](Emitter& e) {
      const Vars& features = x.dims[1];
      const TensorId slots = e.grouped(x, {{routing.experts, "experts"},
                                           {routing.batch, "batch"},
                                           {routing.capacity, "capacity"},
                                           {features, "hidden"}});
      e.define(slot, e.ungrouped(e.op("moe_combine", {slots, slot_of(e, routing)}),
                                 {routing.batch, routing.seq, features}));
    });
    call_.set(std::move(y));
    return {};
  }

  // Lowers an op that does the same to each row. It must be finite for the zeros in empty slots, and so
  // must its derivative there.
  Status by_rows() {
    static const std::set<std::string_view> element_wise = {
        "add",  "add_",  "sub",     "mul",   "mul_", "neg", "relu",    "silu",      "gelu",
        "tanh", "clamp", "sigmoid", "clone", "to",   "abs", "type_as", "contiguous"};
    static const std::set<std::string_view> along_a_dim = {
        "chunk", "slice", "split", "select", "unsqueeze", "split_with_sizes"};
    const size_t rank = operand_->value.dims.size();
    if (along_a_dim.contains(op_)) {
      TESSERA_TRY(const size_t dim, call_.dim("dim", rank + (op_ == "unsqueeze" ? 1 : 0), 0));
      if (dim == 0) return refused();
    } else if (!element_wise.contains(op_)) {
      return refused();
    }
    Lowering& lowering = call_.lowering();
    std::vector<std::string> lent;
    for (const auto& [argument, given] : call_.node().arguments) {
      for (const std::string& tensor : tensors_of(given)) {
        if (const Routed* const one = lowering.routed(tensor)) {
          if (one->kind != Kind::kRows || one->value.dims.size() != rank) return refused();
          lowering.set(tensor, one->value);
          lent.push_back(tensor);
          continue;
        }
        const auto meta = lowering.program().tensors.find(tensor);
        const bool row = meta != lowering.program().tensors.end() &&
                         (meta->second.sizes.size() < rank || meta->second.sizes[0] == 1);
        if (!row) return refused();
      }
    }
    Status done = find_row(op_)(call_);
    for (const std::string& tensor : lent) lowering.set(tensor, {});
    if (!done) return done;
    for (size_t i = 0; i < call_.node().outputs.size(); ++i) {
      const std::string& output = call_.node().outputs[i];
      const Lowering::Item* const made = output.empty() ? nullptr : lowering.item(output);
      const auto* const value = made == nullptr ? nullptr : std::get_if<Value>(made);
      if (value == nullptr) continue;
      TESSERA_TRY_VOID(routed(Kind::kRows, *value, i));
      lowering.set(output, {});
    }
    return {};
  }

  const Call& call_;
  std::string_view op_;
  const Routed *first_ = nullptr, *operand_ = nullptr, *index_ = nullptr, *offsets_ = nullptr;
  Routing routing_;
};

}  // namespace

Status lower_routed(const Call& call, std::string_view op) { return RoutedNode(call, op).lower(); }

Rows expert_rows() { return {{"topk", row_topk}}; }

}  // namespace tessera::pt2
