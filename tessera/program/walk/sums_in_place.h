// Sums made in place: if all terms of a sum are made at its place, in one layout, only for this
// sum, by ops that can add to their output, the terms are written into the sum's buffer one after
// the other, and the sum itself is no instruction. The terms may be made in other blocks than the
// sum (of other stages at this place; of a micro-batch, if they are summed over micro-batches too).
// Private to tessera/program.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <utility>

#include "tessera/program/walk/holds.h"
#include "tessera/program/walk/text_writer.h"

namespace tessera {

// A `SumTerm` is a tensor as a term of a sum that is made in place.
struct SumTerm {
  TensorId sum;
  int term = 0, terms = 1;  // 1 term: it belongs to no sum
  bool first = true;        // whether it is the first of the terms that are made in this block
  bool across = false;      // whether the terms are made in several blocks
};

class SumsInPlace {
 public:
  SumsInPlace(const Facts& facts, TextWriter& writer, ConversionPaths& paths)
      : facts_(facts), writer_(writer), paths_(paths) {}

  // Returns the tensor, which is made at the site in the layout `made`, as a term of such a sum;
  // makes the sum's buffer for the first term. Returns nothing if the tensor is no such term.
  std::optional<SumTerm> begin_term(const Site& site, TensorId tensor, const Layout& made);
  // Returns where a sum is that its terms have made; null if the sum is an op like others.
  const Held* made(OpId sum) const;

 private:
  const Op* sum_of(TensorId term);
  bool fits(const Op& sum);
  std::optional<Layout> made_alike(const Op& sum) const;
  bool is_across(const Op& sum) const;
  const Op& producer(TensorId term) const {
    return facts_.graph().op(facts_.tensor(term).producer);
  }

  const Facts& facts_;
  TextWriter& writer_;
  ConversionPaths& paths_;
  std::map<OpId, bool> fits_;  // whether the sum is made in place
  std::map<OpId, Held> made_;
  std::set<std::pair<OpId, BlockRef>> started_;  // blocks that hold a term of the sum
};

}  // namespace tessera
