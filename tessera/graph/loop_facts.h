// What must be known of a time loop before its ops are written out (unroll.cc): which ops are in it,
// which part of each operand a step reads, how long the pieces are, and which tensors are needed as a
// whole. Private to tessera/graph.
//
//   TESSERA_TRY(const LoopFacts loop, LoopFacts::find(forward, ops, how));
//   if (loop.has(op)) loop.need(op, 0);
//
// Errors: an op that cannot be cut along the looped dim, or sizes that do not fit it.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tessera/base/box.h"
#include "tessera/base/result.h"
#include "tessera/graph/graph.h"
#include "tessera/graph/transform.h"

namespace tessera {

class LoopFacts {
 public:
  // Position of the looped dim in an operand that lacks the dim.
  static constexpr int kReduced = -1;

  // The part of an operand that an op of the loop reads.
  enum class Part : uint8_t { kWhole, kPiece, kUpToPiece };
  struct Need {
    Part part = Part::kWhole;
    int position = kReduced;  // the tensor dim that is cut
    bool operator==(const Need&) const = default;
  };

  // Ops that are connected because they read or write pieces of the same tensors.
  struct Chain {
    const Op* smallest = nullptr;  // the first of the ops whose looped dim is smallest
    int64_t unit = 0;              // a common divisor of the sizes of the looped dim in these ops
    std::vector<Interval> pieces;  // by step: the step's piece of a dim of size `unit`
  };

  // Finds the facts of a loop over the selected ops that have the dim. All arguments outlive them.
  static Result<LoopFacts> find(const Graph& from, const std::vector<bool>& ops,
                                const Unrolling& how);

  size_t steps() const {
    return how_.sizes.empty() ? static_cast<size_t>(how_.steps) : how_.sizes.size();
  }
  bool has(const Op& op) const { return looped_[op.id.index()]; }
  // Returns the size of the looped dim of an op of the loop.
  int64_t size_of(const Op& op) const {
    return op.annotation.dims[static_cast<size_t>(op.annotation.find(how_.dim))].size;
  }
  // Returns the piece of a step in the looped dim of the op, or in a dim that goes with it and has
  // `size` elements.
  Interval piece(const Op& op, int64_t size, size_t step) const {
    const Chain& of = chain(op);
    const int64_t factor = size / of.unit;
    return {of.pieces[step].begin * factor, of.pieces[step].size * factor};
  }

  // Returns what a step of an op of the loop reads of its input i.
  Need need(const Op& op, size_t i) const;
  // Returns the tensor dim along which the steps make different pieces of this tensor. Returns
  // kReduced if the steps make terms of a sum, or if no op of the loop makes the tensor.
  int made_position(TensorId id) const;
  // Returns whether the op reads pieces that steps of the loop make.
  bool reads_pieces(const Op& op, size_t i) const;
  // Returns whether the steps of the op make terms of a sum.
  bool sums(const Op& op) const { return made_position(op.outputs[0]) == kReduced; }
  // Returns whether the tensor is needed as a whole.
  bool is_joined(TensorId id) const { return joined_[id.index()]; }
  // Returns an op of the loop that looks up rows of a parameter that is kept in pieces; else null.
  const Op* pieces_at_rest(TensorId id) const { return at_rest_[id.index()]; }

 private:
  LoopFacts(const Graph& from, const std::vector<bool>& ops, const Unrolling& how);
  const Chain& chain(const Op& op) const {
    return chains_[static_cast<size_t>(chain_of_[op.id.index()])];
  }
  Status check() const;
  Status check(const Op& op) const;
  tl::unexpected<Error> refuse(const Op& op, std::string_view why) const;
  void find_chains();
  Status set_sizes(Chain& chain) const;
  Status check_blocks(const Op& op) const;
  void find_joined();
  bool reads_rows(const Op& op, size_t i) const;
  void take_in_copies_of_tables();
  Status find_pieces_at_rest();

  const Graph& from_;
  const Unrolling& how_;
  std::vector<bool> looped_;   // by op
  std::vector<int> chain_of_;  // by op: index of chains_
  std::vector<Chain> chains_;  // in the order of their first ops
  std::vector<bool> joined_;   // by tensor: whether it is needed as a whole
  // By tensor: for a table that is kept in pieces a reader, else null.
  std::vector<const Op*> at_rest_;
};

}  // namespace tessera
