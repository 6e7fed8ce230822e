// Completion of parts: as a whole, or only its first collective if a later block can go on with it.
#include "tessera/program/walk/complete.h"

#include <algorithm>
#include <utility>

#include "tessera/graph/kinds.h"
#include "tessera/plan/layout/overlapping_parts.h"
#include "tessera/program/crossing.h"
#include "tessera/program/walk/linear_parts.h"
#include "tessera/program/walk/needs.h"

namespace tessera {

Held Completion::complete(const Site& site, TensorId tensor, const Held& from,
                          const std::optional<Layout>& wanted) {
  Layout target = completed(from.region.layout, facts_.mesh(site.place), facts_.shape(tensor));
  if (wanted && wanted->complete()) target = *wanted;
  const auto named = named_.scatter(site, tensor, from, target);
  Held done = named ? *named : converter_.convert(site, tensor, from, target);
  holds_.set_home(site.place, tensor, done);
  return done;
}

std::optional<Completion::Early> Completion::complete_early(const Op& op, TensorId tensor,
                                                            const Op& reader) {
  Site site = facts_.site(op);
  site.cause = reader.id;
  const bool summed = facts_.sums_micro_batches(tensor);
  const Held made = *holds_.home(site.place, tensor);
  if (made.region.layout->complete()) return std::nullopt;
  const bool waits = takes_parts(reader) && facts_.place_of(reader) == site.place;
  if (waits && !(summed && scales_alone(reader))) return std::nullopt;
  const bool later = facts_.block_of(reader).kind == BlockKind::kUpdate;
  if (summed && !later) return std::nullopt;
  auto target = destination(facts_, tensor, site.place, made.region.layout);
  // This is not done for sums over micro-batches: they cross only once a step, in the layout of
  // their homes.
  if (!summed && is_read_elsewhere_alone(site.place, tensor)) {
    target =
        leaving_layout(*made.region.layout, target, facts_.mesh(site.place), facts_.shape(tensor));
  }
  if (waits && collectives_to(site.place, tensor, made, target) != 1) return std::nullopt;
  if (summed) site.when = When::kLast;
  Held done = later ? begin(site, tensor, made, target) : complete(site, tensor, made, target);
  return Early{made, std::move(done), site};
}

// Returns whether all readers of the tensor are at other places, no rank of which is at this place,
// and the plan's `resharding` lets shares of the tensor cross.
bool Completion::is_read_elsewhere_alone(PlaceId place, TensorId tensor) const {
  if (facts_.plan().plan.resharding == "direct") return false;
  return std::ranges::none_of(facts_.readers(tensor), [&](OpId reader) {
    const PlaceId there = facts_.place_of(facts_.graph().op(reader));
    return there == place || share_ranks(facts_.mesh(place), facts_.mesh(there));
  });
}

// Writes only the first collective of a completion if there are several, because this block would
// have to wait for each before the next. The reader in a later block writes the others. Else writes
// the whole completion.
Held Completion::begin(const Site& site, TensorId tensor, const Held& made,
                       const std::optional<Layout>& target) {
  if (collectives_to(site.place, tensor, made, target) <= 1)
    return complete(site, tensor, made, target);
  const auto& path = paths_.find(site.place, tensor, made.region.layout, *target);
  const auto first =
      std::find_if(path.begin(), path.end(), [](const auto& step) { return !step.slice; });
  Held begun = converter_.convert(site, tensor, made, first->to);
  holds_.set_home(site.place, tensor, begun);
  return begun;
}

// Returns the number of collectives that complete the tensor one after the other.
int64_t Completion::collectives_to(PlaceId place, TensorId tensor, const Held& made,
                                   const std::optional<Layout>& target) {
  if (!target || !target->complete()) return 1;
  const auto& path = paths_.find(place, tensor, made.region.layout, *target);
  return std::count_if(path.begin(), path.end(), [](const auto& step) { return !step.slice; });
}

// Returns whether the op begins a chain of linear ops that run once a step, each with one operand
// and all in one dtype, and the chain's result is not read by a linear op with more operands.
// Completing the op's operand then moves as many bytes as completing the chain's result, but can
// begin in the last backward pass.
bool Completion::scales_alone(const Op& op) const {
  const PlaceId place = facts_.place_of(op);
  const Op* at = &op;
  while (at != nullptr && is_linear(*at) && facts_.place_of(*at) == place) {
    if (at->inputs.size() != 1 || at->outputs.size() != 1) return false;
    const Tensor &from = facts_.tensor(at->inputs[0]), &to = facts_.tensor(at->outputs[0]);
    if (from.dtype != to.dtype || facts_.block_of(*at).kind != BlockKind::kUpdate) return false;
    at = facts_.first_reader(at->outputs[0]);
  }
  return true;
}

}  // namespace tessera
