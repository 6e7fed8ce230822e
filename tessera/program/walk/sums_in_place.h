// Sums made in place. The ops that make the terms of a sum add them to the sum's buffer one after
// the other, and the sum itself is no instruction. This is done if all terms are made at the place
// of the sum, in one layout, are read only by the sum, and come from ops that can add to their
// output. The terms may be made in other blocks than that of the sum: in blocks of other stages at
// the place, or, if the terms are also summed over micro-batches, in blocks of micro-batches.
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
  int term = 0, terms = 1;  // terms = 1: the tensor belongs to no sum made in place
  bool first = true;        // whether the term is the first of those that are made in its block
  bool across = false;      // whether the terms of the sum are made in several blocks
};

class SumsInPlace {
 public:
  SumsInPlace(const Facts& facts, TextWriter& writer, ConversionPaths& paths)
      : facts_(facts), writer_(writer), paths_(paths) {}

  // Returns which term of a sum made in place the tensor is, which is made at the site in the
  // layout `made`. Makes the sum's buffer at the first term. Returns nothing if the tensor is no
  // term of such a sum.
  std::optional<SumTerm> begin_term(const Site& site, TensorId tensor, const Layout& made);
  // Returns the value of a sum that was made in place; null if the sum is not made in place.
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
  std::set<std::pair<OpId, BlockRef>> started_;  // sums and blocks in which a term is made already
};

}  // namespace tessera
