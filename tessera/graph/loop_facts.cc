#include "tessera/graph/loop_facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "tessera/base/check.h"
#include "tessera/graph/kinds.h"
#include "tessera/graph/optimizers.h"

namespace tessera {
namespace {

constexpr int kNoChain = -1;

int position_in(const OperandDims& operand, int op_dim) {
  for (size_t t = 0; t < operand.dims.size(); ++t) {
    if (!operand.dims[t].empty() && operand.dims[t][0] == op_dim) return static_cast<int>(t);
  }
  return LoopFacts::kReduced;
}

}  // namespace

LoopFacts::LoopFacts(const Graph& from, const std::vector<bool>& ops, const Unrolling& how)
    : from_(from), how_(how), looped_(ops) {
  TESSERA_CHECK(looped_.size() == from.ops().size(), "selection of {} ops for {}", looped_.size(),
                from.ops().size());
  for (const Op& op : from.ops()) {
    if (op.annotation.find(how.dim) < 0) looped_[op.id.index()] = false;
  }
  take_in_copies_of_tables();
  joined_.resize(from.tensors().size(), false);
  chain_of_.resize(from.ops().size(), kNoChain);
}

Result<LoopFacts> LoopFacts::find(const Graph& from, const std::vector<bool>& ops,
                                  const Unrolling& how) {
  LoopFacts loop(from, ops, how);
  TESSERA_TRY_VOID(loop.check());
  loop.find_chains();
  loop.find_joined();
  for (Chain& chain : loop.chains_) TESSERA_TRY_VOID(loop.set_sizes(chain));
  for (const Op& op : from.ops()) {
    if (loop.has(op)) TESSERA_TRY_VOID(loop.check_blocks(op));
  }
  TESSERA_TRY_VOID(loop.find_pieces_at_rest());
  return loop;
}

Status LoopFacts::check() const {
  for (const Op& op : from_.ops()) {
    if (op.phase != Phase::kForward) {
      return invalid_input(
          fmt::format("expected a forward graph, found {} op '{}'", phase_name(op.phase), op.path));
    }
    if (looped_[op.id.index()]) TESSERA_TRY_VOID(check(op));
  }
  return {};
}

Status LoopFacts::check(const Op& op) const {
  const int d = op.annotation.find(how_.dim);
  const int64_t sum = std::accumulate(how_.sizes.begin(), how_.sizes.end(), int64_t{0});
  if (!how_.sizes.empty() && (sum == 0 || size_of(op) % sum != 0)) {
    return refuse(
        op, fmt::format("has size {}, but the sizes of the steps add up to {}", size_of(op), sum));
  }
  if (const Status may = check_loopable(op, d); !may) return refuse(op, may.error().message);
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    if (how_.blocks > 1 && need(op, i).part == Part::kUpToPiece) {
      return refuse(op, "is in causal order: its steps are intervals, not parts of blocks");
    }
  }
  return {};
}

tl::unexpected<Error> LoopFacts::refuse(const Op& op, std::string_view why) const {
  return invalid_input(fmt::format("dim '{}' of op '{}' ({}) {}", how_.dim, op.path, op.kind, why));
}

void LoopFacts::find_chains() {
  std::vector<int> of_tensor(from_.tensors().size(), kNoChain);
  // By chain: another chain with which it was joined, or itself; union-find.
  std::vector<int> leader;
  const auto find = [&](int chain) {
    while (leader[static_cast<size_t>(chain)] != chain) chain = leader[static_cast<size_t>(chain)];
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

Status LoopFacts::set_sizes(Chain& chain) const {
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
Status LoopFacts::check_blocks(const Op& op) const {
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
    if (position != kReduced && joined_[output.index()]) TESSERA_TRY_VOID(check(output, position));
  }
  return {};
}

LoopFacts::Need LoopFacts::need(const Op& op, size_t i) const {
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

int LoopFacts::made_position(TensorId id) const {
  const OpId producer = from_.tensor(id).producer;
  if (!producer.valid() || !looped_[producer.index()]) return kReduced;
  const Op& op = from_.op(producer);
  const auto output = std::find(op.outputs.begin(), op.outputs.end(), id) - op.outputs.begin();
  return position_in(op.annotation.outputs[static_cast<size_t>(output)],
                     op.annotation.find(how_.dim));
}

bool LoopFacts::reads_pieces(const Op& op, size_t i) const {
  const Need how = need(op, i);
  return how.part != Part::kWhole && made_position(op.inputs[i]) == how.position;
}

// Finds the tensors made in the loop that an op reads as a whole, or that are results of
// the graph.
void LoopFacts::find_joined() {
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

// ---- tables whose rows are cut
// Returns whether the operand is a table of which an op of the loop looks up, in each step, the
// rows of the step's piece.
bool LoopFacts::reads_rows(const Op& op, size_t i) const {
  return looped_[op.id.index()] && looks_up_rows(op) && i == 1 &&
         need(op, i) == Need{Part::kPiece, 0};
}

// If only ops of the loop look up rows of a parameter's copy in another dtype, adds the op that
// makes the copy to the loop, so that the table is converted piece by piece.
void LoopFacts::take_in_copies_of_tables() {
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
Status LoopFacts::find_pieces_at_rest() {
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

}  // namespace tessera
