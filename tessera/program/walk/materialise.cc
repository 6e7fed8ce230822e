// Makes one operand available: by a crossing, a load or a conversion.
#include "tessera/program/walk/materialise.h"

#include <algorithm>

#include "tessera/base/check.h"

namespace tessera {

Held Materialiser::materialise(const Op& reader, TensorId tensor, const Layout& need) {
  Site site = facts_.site(reader);
  if (facts_.tensor(tensor).role == Role::kInput) return loads_.load(site, tensor, need);
  bring(reader, tensor);
  keep_copy(reader, tensor, need);
  const Held* hold = holds_.best(site.place, tensor, site.block, &need);
  TESSERA_CHECK(hold != nullptr, "tensor '{}' is held nowhere", facts_.tensor(tensor).name);
  if (hold->region.layout == need) return *hold;
  const bool completes = !hold->region.layout->complete() && need.complete();
  if (kept_for_the_step(tensor) && facts_.tensor_plan(tensor).keep_over.numbers().empty() &&
      site.block != BlockKind::kUpdate) {
    site.block = BlockKind::kPrologue;
  }
  if (completes) {  // the completed value becomes the home, because the parts are not needed again
    const Layout plain = without_windows(need, facts_.mesh(site.place), facts_.shape(tensor));
    holds_.set_home(site.place, tensor, converter_.convert(site, tensor, *hold, plain));
    hold = holds_.home(site.place, tensor);
    if (plain == need) return *hold;
  }
  if (const auto named = named_.gather(reader, tensor, *hold, need)) return *named;
  Held converted = converter_.convert(site, tensor, *hold, need);
  holds_.add_copy(site.place, site.block, tensor, converted);
  return converted;
}

// Makes the copy that stays for the backward pass or for the step, if the plan keeps a copy of the
// tensor in a layout of its own (Holds::kept_layout). It is made from the home and not from a
// larger copy, so that no larger copy needs to stay too.
void Materialiser::keep_copy(const Op& reader, TensorId tensor, const Layout& need) {
  Site site = facts_.site(reader);
  const std::optional<Layout> kept = holds_.kept_layout(site.place, tensor, need);
  if (!kept || site.block == BlockKind::kUpdate) return;
  if (kept_for_the_step(tensor)) {
    site.block = BlockKind::kPrologue;
  } else if (site.block.kind != BlockKind::kForward || !read_after(site, tensor)) {
    return;
  }
  if (holds_.best(site.place, tensor, site.block, &*kept)->region.layout == *kept) return;
  const Held& home = *holds_.home(site.place, tensor);
  holds_.add_copy(site.place, site.block, tensor, converter_.convert(site, tensor, home, *kept));
}

// Returns whether a block of the backward pass at the site's place reads the tensor.
bool Materialiser::read_after(const Site& site, TensorId tensor) const {
  return std::ranges::any_of(facts_.readers(tensor), [&](OpId id) {
    const Site reader = facts_.site(facts_.graph().op(id));
    return reader.place == site.place && !reader.block.once() &&
           reader.block.chunk == site.block.chunk && reader.block.kind > BlockKind::kForward;
  });
}

const Layout& Materialiser::held_layout(const Op& reader, TensorId tensor) {
  bring(reader, tensor);
  const Site site = facts_.site(reader);
  return holds_.best(site.place, tensor, site.block, nullptr)->region.layout;
}

std::optional<Held> Materialiser::before_need(const Op& reader, TensorId tensor,
                                              const Layout& need) {
  if (held_layout(reader, tensor) == need) return std::nullopt;
  const Site site = facts_.site(reader);
  if (holds_.best(site.place, tensor, site.block, &need)->region.layout == need)
    return std::nullopt;
  materialise(reader, tensor, need);
  const Held* home = holds_.home(site.place, tensor);  // it is complete by now
  if (home == nullptr || home->region.piece || !home->region.layout->complete())
    return std::nullopt;
  if (writer_.buffer(site.place, home->buffer).tier != Tier::kDevice) return std::nullopt;
  return *home;
}

void Materialiser::bring(const Op& reader, TensorId tensor) {
  const Site site = facts_.site(reader);
  if (holds_.best(site.place, tensor, site.block, nullptr) == nullptr)
    between_.fetch(tensor, reader);
}

// Returns whether the plan keeps gathered copies of the tensor for the step. This is possible only
// for tensors at rest and for tensors that the prologue makes (the narrow copy of a parameter).
bool Materialiser::kept_for_the_step(TensorId tensor) const {
  if (facts_.tensor_plan(tensor).keep != Keep::kStep) return false;
  const OpId producer = facts_.tensor(tensor).producer;
  return !producer.valid() ||
         facts_.block_of(facts_.graph().op(producer)) == BlockRef(BlockKind::kPrologue);
}

}  // namespace tessera
