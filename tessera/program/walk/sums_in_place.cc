// Finds the sums that can be made in place, and makes the buffer of each.
#include "tessera/program/walk/sums_in_place.h"

#include <algorithm>

#include "tessera/graph/kinds.h"
#include "tessera/program/walk/needs.h"

namespace tessera {

std::optional<SumTerm> SumsInPlace::begin_term(const Site& site, TensorId tensor,
                                               const Layout& made) {
  const Op* sum = sum_of(tensor);
  if (sum == nullptr) return std::nullopt;
  SumTerm out;
  out.sum = sum->outputs[0];
  out.terms = static_cast<int>(sum->inputs.size());
  out.term = static_cast<int>(operand_index(facts_.graph(), *sum, tensor));
  out.across = is_across(*sum);
  out.first = started_.emplace(sum->id, site.block).second;
  if (!made_.contains(sum->id)) {
    Held held;
    held.region = {made, std::nullopt};
    held.buffer = writer_.new_buffer(site.place, out.sum, "", held.region);
    held.block = site.block;
    writer_.buffer(site.place, held.buffer).accumulates = out.across && !facts_.one_micro_batch();
    made_[sum->id] = held;
  }
  return out;
}

const Held* SumsInPlace::made(OpId sum) const {
  const auto it = made_.find(sum);
  return it == made_.end() ? nullptr : &it->second;
}

const Op* SumsInPlace::sum_of(TensorId term) {
  const std::vector<OpId>& readers = facts_.readers(term);
  if (readers.size() != 1 || facts_.tensor(term).update_of.valid()) return nullptr;
  const Op& sum = facts_.graph().op(readers[0]);
  auto known = fits_.find(sum.id);
  if (known == fits_.end()) known = fits_.emplace(sum.id, fits(sum)).first;
  return known->second ? &sum : nullptr;
}

bool SumsInPlace::fits(const Op& sum) {
  if (!is_sum_of_terms(sum) || loop_of(facts_.op_plan(sum)).exists()) return false;
  const std::optional<Layout> made = made_alike(sum);
  if (!made) return false;
  if (!made->complete()) return true;
  const Mesh& mesh = facts_.mesh(facts_.place_of(sum));
  const Layout layout = normalise(*made, mesh, facts_.shape(sum.inputs[0]));
  return layout == need_of(facts_, sum, 0) || paths_.moves_once(sum, layout);
}

// Returns the layout in which all terms are made; nothing if the layouts differ, or if some term
// cannot be written into the sum's buffer.
std::optional<Layout> SumsInPlace::made_alike(const Op& sum) const {
  std::optional<Layout> made;
  const PlaceId place = facts_.place_of(sum);
  // If a term is made step by step and the sum is the gradient of a parameter, the sum is not made
  // in place. Each step's parts then go to the ranks that hold the gradient. In place, parts of the
  // whole gradient would have to be kept from the first term to the last.
  const TensorId of = facts_.tensor(sum.outputs[0]).of;
  const bool rests = of.valid() && facts_.tensor(of).role == Role::kParameter;
  for (TensorId input : sum.inputs) {
    if (!facts_.tensor(input).producer.valid() || facts_.readers(input).size() != 1 ||
        std::count(sum.inputs.begin(), sum.inputs.end(), input) != 1)
      return std::nullopt;
    const Op& op = producer(input);
    const bool same_block = facts_.block_of(op) == facts_.block_of(sum);
    if (!same_block && !facts_.sums_micro_batches(input) && !facts_.one_micro_batch())
      return std::nullopt;
    const size_t output = static_cast<size_t>(
        std::find(op.outputs.begin(), op.outputs.end(), input) - op.outputs.begin());
    if (facts_.place_of(op) != place || !accumulates(op, output) || is_linear(op))
      return std::nullopt;
    const OpPlan& plan = facts_.op_plan(op);
    const Mesh& mesh = facts_.mesh(place);
    if (rests && step_piece(op, plan, op.annotation.outputs[output], mesh, facts_.graph(), 0))
      return std::nullopt;
    Layout layout = made_layout(op, plan, output, mesh, facts_.shape(input));
    if (made && layout != *made) return std::nullopt;
    made = std::move(layout);
  }
  return made;
}

bool SumsInPlace::is_across(const Op& sum) const {
  return std::any_of(sum.inputs.begin(), sum.inputs.end(), [&](TensorId input) {
    return facts_.block_of(producer(input)) != facts_.block_of(sum);
  });
}

}  // namespace tessera
