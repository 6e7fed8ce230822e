// Writes out time loops over more than one op: every op of the loop is added once for each step.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "tessera/base/box.h"
#include "tessera/base/check.h"
#include "tessera/base/text.h"
#include "tessera/graph/builder.h"
#include "tessera/graph/kinds.h"
#include "tessera/graph/optimizers.h"
#include "tessera/graph/transform.h"
#include "tessera/graph/within.h"

namespace tessera {
namespace {

constexpr int kReduced = -1;  // position of the looped dim in an operand that lacks the dim
constexpr int kNoChain = -1;

class UnrollPass {
 public:
  UnrollPass(const Graph& from, const std::vector<bool>& ops, const Unrolling& how)
      : from_(from), how_(how), to_(from.name), looped_(ops) {
    TESSERA_CHECK(looped_.size() == from.ops().size(), "selection of {} ops for {}", looped_.size(),
                  from.ops().size());
    for (const Op& op : from.ops()) {
      if (op.annotation.find(how.dim) < 0) looped_[op.id.index()] = false;
    }
    take_in_copies_of_tables();
    whole_.resize(from.tensors().size());
    pieces_.resize(from.tensors().size());
    in_run_.resize(from.tensors().size(), false);
    joined_.resize(from.tensors().size(), false);
    chain_of_.resize(from.ops().size(), kNoChain);
  }

  Result<Graph> run() {
    TESSERA_TRY_VOID(check());
    find_chains();
    find_joined();
    for (Chain& chain : chains_) TESSERA_TRY_VOID(set_sizes(chain));
    for (const Op& op : from_.ops()) {
      if (looped_[op.id.index()]) TESSERA_TRY_VOID(check_blocks(op));
    }
    TESSERA_TRY_VOID(find_pieces_at_rest());
    for (const Tensor& tensor : from_.tensors()) {
      if (tensor.producer.valid()) continue;
      if (at_rest_[tensor.id.index()] != nullptr) {
        add_pieces(tensor);
      } else {
        whole_[tensor.id.index()] = to_.graph().add_tensor(tensor);
      }
    }
    for (const Op& op : from_.ops()) {
      if (looped_[op.id.index()]) {
        if (waits_for_run(op)) {
          if (how_.stages) return waits_in_stages(op);
          flush();
        }
        run_.push_back(op.id);
        for (const TensorId output : op.outputs) in_run_[output.index()] = true;
      } else {
        const bool reads_run = std::any_of(op.inputs.begin(), op.inputs.end(),
                                           [&](TensorId id) { return in_run_[id.index()]; });
        if (reads_run) flush();
        copy(op);
      }
      if (!to_.ok()) break;
    }
    flush();
    if (to_.ok() && from_.loss.valid()) to_.graph().loss = whole_[from_.loss.index()];
    return to_.finish();
  }

 private:
  // The part of an operand that an op of the loop reads.
  enum class Part : uint8_t { kWhole, kPiece, kUpToPiece };
  struct Need {
    Part part = Part::kWhole;
    int position = kReduced;  // the tensor dim that is cut
    bool operator==(const Need&) const = default;
  };
  struct Pieces {
    int position = kReduced;
    std::vector<TensorId> by_step;
  };

  // Ops that are connected because they read or write pieces of the same tensors.
  struct Chain {
    const Op* smallest = nullptr;  // the first of the ops whose looped dim is smallest
    int64_t unit = 0;              // a common divisor of the sizes of the looped dim in these ops
    std::vector<Interval> pieces;  // by step: the step's piece of a dim of size `unit`
  };

  size_t steps() const {
    return how_.sizes.empty() ? static_cast<size_t>(how_.steps) : how_.sizes.size();
  }
  const Chain& chain(const Op& op) const {
    return chains_[static_cast<size_t>(chain_of_[op.id.index()])];
  }
  int64_t size_of(const Op& op) const {
    return op.annotation.dims[static_cast<size_t>(op.annotation.find(how_.dim))].size;
  }
  // Returns the piece of a step in the looped dim of an op of the chain, which has `size` elements.
  static Interval piece(const Chain& chain, int64_t size, size_t step) {
    const int64_t factor = size / chain.unit;
    return {chain.pieces[step].begin * factor, chain.pieces[step].size * factor};
  }

  Status check() const {
    for (const Op& op : from_.ops()) {
      if (op.phase != Phase::kForward) {
        return invalid_input(fmt::format("expected a forward graph, found {} op '{}'",
                                         phase_name(op.phase), op.path));
      }
      if (looped_[op.id.index()]) TESSERA_TRY_VOID(check(op));
    }
    return {};
  }

  Status check(const Op& op) const {
    const int d = op.annotation.find(how_.dim);
    const int64_t sum = std::accumulate(how_.sizes.begin(), how_.sizes.end(), int64_t{0});
    if (!how_.sizes.empty() && (sum == 0 || size_of(op) % sum != 0)) {
      return refuse(op, fmt::format("has size {}, but the sizes of the steps add up to {}",
                                    size_of(op), sum));
    }
    if (const Status may = check_loopable(op, d); !may) return refuse(op, may.error().message);
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      if (how_.blocks > 1 && need(op, i).part == Part::kUpToPiece) {
        return refuse(op, "is in causal order: its steps are intervals, not parts of blocks");
      }
    }
    return {};
  }

  tl::unexpected<Error> refuse(const Op& op, std::string_view why) const {
    return invalid_input(
        fmt::format("dim '{}' of op '{}' ({}) {}", how_.dim, op.path, op.kind, why));
  }

  // ---- chains
  void find_chains() {
    std::vector<int> of_tensor(from_.tensors().size(), kNoChain);
    // By chain: another chain with which it was joined, or itself; union-find.
    std::vector<int> leader;
    const auto find = [&](int chain) {
      while (leader[static_cast<size_t>(chain)] != chain)
        chain = leader[static_cast<size_t>(chain)];
      return chain;
    };
    for (const Op& op : from_.ops()) {
      if (!looped_[op.id.index()]) continue;
      int& own = chain_of_[op.id.index()];
      own = static_cast<int>(leader.size());
      leader.push_back(own);
      const auto touch = [&](TensorId tensor) {
        int& known = of_tensor[tensor.index()];
        if (known == kNoChain) known = own;
        leader[static_cast<size_t>(find(own))] = find(known);
      };
      for (size_t i = 0; i < op.inputs.size(); ++i) {
        if (need(op, i).part != Part::kWhole) touch(op.inputs[i]);
      }
      for (const TensorId output : op.outputs) {
        if (made_position(output) != kReduced) touch(output);
      }
    }
    std::vector<int> number(leader.size(), kNoChain);
    for (const Op& op : from_.ops()) {
      if (!looped_[op.id.index()]) continue;
      int& own = chain_of_[op.id.index()];
      int& known = number[static_cast<size_t>(find(own))];
      if (known == kNoChain) {
        known = static_cast<int>(chains_.size());
        chains_.emplace_back();
      }
      own = known;
      Chain& chain = chains_[static_cast<size_t>(own)];
      if (chain.smallest == nullptr || size_of(op) < size_of(*chain.smallest)) chain.smallest = &op;
      chain.unit = std::gcd(chain.unit, size_of(op));
    }
  }

  Status set_sizes(Chain& chain) const {
    const int64_t blocks = how_.blocks;
    std::vector<int64_t> sizes = how_.sizes;
    if (!sizes.empty()) chain.unit = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
    const int64_t shortest = chain.unit / blocks, longer = chain.unit % blocks;
    if (longer > 0 && !how_.even_blocks.empty()) return refuse(*chain.smallest, how_.even_blocks);
    if (sizes.empty()) {
      const int64_t longest = shortest + (longer > 0 ? 1 : 0);
      if (how_.steps > longest) {
        return invalid_input(
            fmt::format("steps = {}: dim '{}' of op '{}' has only {} elements{}", how_.steps,
                        how_.dim, chain.smallest->path, longest,
                        blocks > 1 ? fmt::format(" in each of {} shards", blocks) : std::string()));
      }
      for (int64_t step = 0; step < how_.steps; ++step)
        sizes.push_back(split_interval({0, shortest}, how_.steps, step).size * blocks);
      sizes.back() += longer;  // the additional element of the longer blocks is at their end
    }
    for (size_t step = 0; step < sizes.size(); ++step) {
      if (sizes[step] % blocks != (step + 1 < sizes.size() ? 0 : longer)) {
        return invalid_input(
            fmt::format("expected sizes that are multiples of {}{}, as the plan splits dim '{}' "
                        "over so many ranks, found {}",
                        blocks, longer > 0 ? fmt::format(" (the last one {} more)", longer) : "",
                        how_.dim, sizes[step]));
      }
      const int64_t begin = chain.pieces.empty() ? 0 : chain.pieces.back().end();
      chain.pieces.push_back({begin, sizes[step]});
    }
    return {};
  }

  // Checks the tensors that are cut and joined if the blocks have uneven sizes. They must have the
  // size `unit` in the looped dim, because they are cut and joined by elements.
  Status check_blocks(const Op& op) const {
    const int64_t unit = chain(op).unit;
    if (unit % how_.blocks == 0) return {};
    const auto check = [&](TensorId id, int position) -> Status {
      const int64_t size = from_.tensor(id).dims[static_cast<size_t>(position)].size;
      if (size == unit) return {};
      return refuse(op, fmt::format("has {} elements in '{}' for {} of the loop, which {} ranks do "
                                    "not divide: its pieces cannot be cut",
                                    size, from_.tensor(id).name, unit, how_.blocks));
    };
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      const Need how = need(op, i);
      if (how.part == Part::kPiece && !reads_pieces(op, i))
        TESSERA_TRY_VOID(check(op.inputs[i], how.position));
    }
    for (const TensorId output : op.outputs) {
      const int position = made_position(output);
      if (position != kReduced && joined_[output.index()])
        TESSERA_TRY_VOID(check(output, position));
    }
    return {};
  }

  static int position_in(const OperandDims& operand, int op_dim) {
    for (size_t t = 0; t < operand.dims.size(); ++t) {
      if (!operand.dims[t].empty() && operand.dims[t][0] == op_dim) return static_cast<int>(t);
    }
    return kReduced;
  }

  Need need(const Op& op, size_t i) const {
    const int d = op.annotation.find(how_.dim);
    const OperandDims& operand = op.annotation.inputs[i];
    if (const int position = position_in(operand, d); position != kReduced) {
      return {Part::kPiece, position};
    }
    for (size_t t = 0; t < operand.dims.size(); ++t) {
      if (operand.dims[t].size() != 1) continue;
      if (op.annotation.dims[static_cast<size_t>(operand.dims[t][0])].causal_of == d) {
        return {Part::kUpToPiece, static_cast<int>(t)};
      }
    }
    return {};
  }

  // Returns the tensor dim along which the steps make different pieces of this tensor. Returns
  // kReduced if the steps make terms of a sum, or if no op of the loop makes the tensor.
  int made_position(TensorId id) const {
    const OpId producer = from_.tensor(id).producer;
    if (!producer.valid() || !looped_[producer.index()]) return kReduced;
    const Op& op = from_.op(producer);
    const auto output = std::find(op.outputs.begin(), op.outputs.end(), id) - op.outputs.begin();
    return position_in(op.annotation.outputs[static_cast<size_t>(output)],
                       op.annotation.find(how_.dim));
  }

  bool reads_pieces(const Op& op, size_t i) const {
    const Need how = need(op, i);
    return how.part != Part::kWhole && made_position(op.inputs[i]) == how.position;
  }

  // Finds the tensors made in the loop that an op reads as a whole, or that are results of
  // the graph.
  void find_joined() {
    for (const Op& op : from_.ops()) {
      for (size_t i = 0; i < op.inputs.size(); ++i) {
        if (!looped_[op.id.index()] || !reads_pieces(op, i)) joined_[op.inputs[i].index()] = true;
      }
    }
    if (from_.loss.valid()) joined_[from_.loss.index()] = true;
    // A tensor that no op reads is made for use outside the graph, for example running state
    // (carried.h).
    const auto readers = from_.consumers();
    for (const Op& op : from_.ops()) {
      const TensorId made = op.outputs[0];
      if (op.outputs.size() == 1 && readers[made.index()].empty()) joined_[made.index()] = true;
    }
  }

  bool waits_for_run(const Op& op) const { return waits_for(op) < op.inputs.size(); }
  size_t waits_for(const Op& op) const {
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      if (in_run_[op.inputs[i].index()] && !reads_pieces(op, i)) return i;
    }
    return op.inputs.size();
  }

  tl::unexpected<Error> waits_in_stages(const Op& op) const {
    const std::string& name = from_.tensor(op.inputs[waits_for(op)]).name;
    return invalid_input(
        fmt::format("op '{}' ({}) reads '{}' of all steps over dim '{}': steps that are stages "
                    "may read earlier steps only (attention: causal = 1)",
                    op.path, op.kind, name, how_.dim));
  }

  // ---- tables whose rows are cut
  // Returns whether the operand is a table of which an op of the loop looks up, in each step, the
  // rows of the step's piece.
  bool reads_rows(const Op& op, size_t i) const {
    return looped_[op.id.index()] && looks_up_rows(op) && i == 1 &&
           need(op, i) == Need{Part::kPiece, 0};
  }

  // If only ops of the loop look up rows of a parameter's copy in another dtype, adds the op that
  // makes the copy to the loop, so that the table is converted piece by piece.
  void take_in_copies_of_tables() {
    // By tensor; computed when the first such copy is found.
    std::vector<std::vector<OpId>> readers;
    for (const Op& op : from_.ops()) {
      if (!reads_rows(op, 1)) continue;
      const TensorId table = op.inputs[1];
      const OpId made_by = from_.tensor(table).producer;
      if (!made_by.valid() || !table_of(from_, table).valid()) continue;
      if (readers.empty()) readers = from_.consumers();
      const std::vector<OpId>& all = readers[table.index()];
      looped_[made_by.index()] = std::all_of(all.begin(), all.end(), [&](OpId reader) {
        const Op& other = from_.op(reader);
        return other.inputs.size() > 1 && other.inputs[1] == table && reads_rows(other, 1);
      });
    }
  }

  // Finds the parameters that are kept in pieces: ops of the loop look up their rows, and all other
  // readers are in the loop too and read the same pieces.
  Status find_pieces_at_rest() {
    at_rest_.assign(from_.tensors().size(), nullptr);
    std::vector<bool> read_otherwise(from_.tensors().size());
    for (const Op& op : from_.ops()) {
      for (size_t i = 0; i < op.inputs.size(); ++i) {
        const TensorId id = op.inputs[i];
        if (!looped_[op.id.index()] || !(need(op, i) == Need{Part::kPiece, 0}))
          read_otherwise[id.index()] = true;
        const TensorId table = reads_rows(op, i) ? table_of(from_, id) : TensorId();
        if (table.valid()) at_rest_[table.index()] = &op;
      }
    }
    for (const Tensor& tensor : from_.tensors()) {
      const Op*& reader = at_rest_[tensor.id.index()];
      if (reader == nullptr) continue;
      if (how_.blocks > 1)
        return refuse(*reader, "counts the rows of a table: its pieces are intervals");
      if (read_otherwise[tensor.id.index()]) reader = nullptr;
    }
    return {};
  }

  void add_pieces(const Tensor& tensor) {
    const Chain& of = chain(*at_rest_[tensor.id.index()]);
    for (size_t step = 0; step < steps(); ++step) {
      Tensor part = tensor;
      part.name = fmt::format("{}#{}", tensor.name, step);
      part.dims[0].size = piece(of, tensor.dims[0].size, step).size;
      parts_[{tensor.id, 0, static_cast<int>(Part::kPiece), step}] =
          to_.graph().add_tensor(std::move(part));
    }
  }

  // ---- what an op reads
  // ------------------------------------------------------------------------
  TensorId operand(const Op& op, size_t i, size_t step) {
    const TensorId id = op.inputs[i];
    const Need how = need(op, i);
    if (how.part == Part::kWhole) return whole_[id.index()];
    const bool made_by_step = reads_pieces(op, i);
    if (how.part == Part::kPiece && made_by_step) return pieces_[id.index()].by_step[step];
    TensorId& known = parts_[{id, how.position, static_cast<int>(how.part), step}];
    if (!known.valid()) {
      known = made_by_step ? joined_up_to(op, i, step) : cut(op, i, how, step);
    }
    return known;
  }

  // Cuts the step's part from a tensor that the steps do not make.
  TensorId cut(const Op& op, size_t i, const Need& how, size_t step) {
    const TensorId x = whole_[op.inputs[i].index()];
    const Dim dim = to_.tensor(x).dims[static_cast<size_t>(how.position)];
    const Interval own = piece(chain(op), dim.size, step);
    const bool up_to = how.part == Part::kUpToPiece;
    const int64_t begin = up_to ? 0 : own.begin / how_.blocks;
    const int64_t end = (own.end() + how_.blocks - 1) / how_.blocks;  // in the longest block
    if (up_to && step + 1 == steps()) return x;
    const TensorId part = to_.op1(
        fmt::format("{}@part{}#{}", op.path, i, step), "slice", {x},
        {{"dim", dim.name}, {"begin", begin}, {"size", end - begin}, {"blocks", how_.blocks}});
    const bool at_rest = !from_.tensor(op.inputs[i]).producer.valid();
    if (part.valid()) to_.graph().tensor(part).recompute = at_rest || how_.recompute;
    return part;
  }

  // Joins the pieces of the steps so far. Only the pieces are kept for the backward pass, because
  // joined copies kept for all steps would need memory that grows with the square of the dim.
  TensorId joined_up_to(const Op& op, size_t i, size_t step) {
    const Pieces& pieces = pieces_[op.inputs[i].index()];
    if (step == 0) return pieces.by_step[0];
    const auto end = pieces.by_step.begin() + static_cast<std::ptrdiff_t>(step) + 1;
    const std::string dim =
        from_.tensor(op.inputs[i]).dims[static_cast<size_t>(pieces.position)].name;
    const TensorId joined = to_.op1(fmt::format("{}@part{}#{}", op.path, i, step), "concat",
                                    {pieces.by_step.begin(), end}, {{"dim", dim}});
    if (joined.valid()) to_.graph().tensor(joined).recompute = true;
    return joined;
  }

  // ---- what is made
  // ----------------------------------------------------------------------------
  void copy(const Op& op) {
    std::vector<TensorId> inputs;
    for (const TensorId input : op.inputs) inputs.push_back(whole_[input.index()]);
    to_.set_step(how_.stages ? (flushed_ ? static_cast<int>(steps()) - 1 : 0) : op.step);
    const std::vector<TensorId> outputs = to_.op(op.path, op.kind, inputs, op.attributes);
    for (size_t o = 0; o < outputs.size() && to_.ok(); ++o) {
      Tensor& made = to_.graph().tensor(outputs[o]);
      made.name = from_.tensor(op.outputs[o]).name;
      made.recompute = from_.tensor(op.outputs[o]).recompute;
      whole_[op.outputs[o].index()] = outputs[o];
    }
  }

  // Adds all steps of the waiting ops, step by step, and joins the outputs that other ops read as
  // a whole.
  void flush() {
    for (size_t step = 0; step < steps() && to_.ok(); ++step) {
      for (const OpId id : run_) {
        if (to_.ok()) clone(from_.op(id), step);
      }
    }
    for (const OpId id : run_) {
      const Op& op = from_.op(id);
      for (size_t o = 0; o < op.outputs.size() && to_.ok(); ++o) {
        in_run_[op.outputs[o].index()] = false;
        if (joined_[op.outputs[o].index()]) join(op, o);
      }
    }
    flushed_ = flushed_ || !run_.empty();
    run_.clear();
  }

  void clone(const Op& op, size_t step) {
    std::vector<TensorId> inputs;
    to_.set_step(how_.stages ? static_cast<int>(step) : op.step);
    for (size_t i = 0; i < op.inputs.size() && to_.ok(); ++i) {
      inputs.push_back(operand(op, i, step));
    }
    Attributes attributes = attributes_of(op, step);
    const KindInfo& kind = info_of(op);
    const auto once = static_cast<size_t>(kind.added_once);
    if (step > 0 && kind.added_once >= 0 && once < op.inputs.size() && sums(op)) {
      inputs.erase(inputs.begin() + kind.added_once);
      for (const auto& [name, value] : kind.without_added(op)) attributes[name] = value;
    }
    const std::vector<TensorId> outputs =
        to_.op(fmt::format("{}#{}", op.path, step), op.kind, inputs, attributes);
    if (!to_.ok()) return;
    for (size_t o = 0; o < outputs.size(); ++o) {
      const TensorId original = op.outputs[o];
      Tensor& made = to_.graph().tensor(outputs[o]);
      made.name = fmt::format("{}#{}", from_.tensor(original).name, step);
      made.recompute = how_.recompute || from_.tensor(original).recompute;
      pieces_[original.index()].position = made_position(original);
      pieces_[original.index()].by_step.push_back(outputs[o]);
    }
  }

  // Returns whether the steps of the op make terms of a sum.
  bool sums(const Op& op) const { return made_position(op.outputs[0]) == kReduced; }

  Attributes attributes_of(const Op& op, size_t step) const {
    Attributes attributes = op.attributes;
    for (const std::string& key : info_of(op).size_attributes) {
      std::vector<std::string> items = split_text(op.text(key), ' ');
      for (std::string& item : items) {
        if (!item.starts_with(how_.dim + "=")) continue;
        item = fmt::format("{}={}", how_.dim, piece(chain(op), size_of(op), step).size);
      }
      attributes[key] = tessera::join(items, " ");
    }
    if (position_rule(op, op.annotation.find(how_.dim)) == PositionRule::kWithin) {
      const int64_t size = size_of(op), begin = piece(chain(op), size, step).begin;
      const Within place{how_.dim, begin / how_.blocks, size, how_.blocks};
      const std::string before = op.text("within");
      attributes["within"] = before + (before.empty() ? "" : " ") + to_string({place});
    }
    return attributes;
  }

  void join(const Op& op, size_t output) {
    const TensorId original = op.outputs[output];
    const Tensor& tensor = from_.tensor(original);
    const Pieces& pieces = pieces_[original.index()];
    const std::string& path = op.outputs.size() == 1 ? op.path : tensor.name;
    to_.set_step(how_.stages ? static_cast<int>(steps()) - 1 : op.step);
    TensorId& whole = whole_[original.index()];
    if (steps() == 1) {
      whole = pieces.by_step[0];
    } else if (pieces.position == kReduced) {
      whole = to_.op1(path, "add_n", pieces.by_step);
    } else {
      whole = to_.op1(path, "concat", pieces.by_step,
                      {{"dim", tensor.dims[static_cast<size_t>(pieces.position)].name},
                       {"blocks", how_.blocks}});
    }
    if (whole.valid()) {
      to_.graph().tensor(whole).name = tensor.name;
      to_.graph().tensor(whole).recompute = tensor.recompute;
    }
  }

  const Graph& from_;
  const Unrolling& how_;
  GraphBuilder to_;
  std::vector<bool> looped_;     // by op of from_
  std::vector<int> chain_of_;    // by op of from_: index of chains_
  std::vector<Chain> chains_;    // in the order of their first ops
  std::vector<TensorId> whole_;  // by tensor of from_; invalid: not (or not yet) made as a whole
  std::vector<Pieces> pieces_;   // by tensor of from_
  std::vector<bool> joined_;     // by tensor of from_: whether it is needed as a whole
  std::vector<bool> in_run_;     // by tensor of from_: whether a waiting op makes it
  std::vector<OpId> run_;        // ops of the loop whose steps are not added yet
  bool flushed_ = false;
  // By tensor of from_: for a table that is kept in pieces a reader, else null.
  std::vector<const Op*> at_rest_;
  // Parts of operands by tensor, position, Part and step.
  std::map<std::tuple<TensorId, int, int, size_t>, TensorId> parts_;
};

}  // namespace

Result<Graph> unroll(const Graph& forward, const std::vector<bool>& ops, const Unrolling& how) {
  return UnrollPass(forward, ops, how).run();
}

}  // namespace tessera
