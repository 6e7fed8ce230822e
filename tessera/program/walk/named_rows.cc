// Finds conversions for which only named rows must move, and writes their exchanges.
#include "tessera/program/walk/named_rows.h"

#include <algorithm>

#include "tessera/graph/kinds.h"
#include "tessera/graph/rows.h"
#include "tessera/program/walk/needs.h"

namespace tessera {
namespace {

bool cuts_rows_alone(const Layout& cut, const Layout& whole, const Axes& axes) {
  if (cut.shards.empty() || cut.shards[0] != axes || !whole.shards[0].empty()) return false;
  return std::equal(cut.shards.begin() + 1, cut.shards.end(), whole.shards.begin() + 1);
}

}  // namespace

std::optional<Held> NamedRowsMover::gather(const Op& reader, TensorId tensor, const Held& from,
                                           const Layout& need) {
  const RowNaming* naming = naming_of(reader);
  if (naming == nullptr || naming->input < 0 ||
      reader.inputs[static_cast<size_t>(naming->input)] != tensor ||
      std::ranges::count(reader.inputs, tensor) != 1)
    return std::nullopt;
  const Site site = facts_.site(reader);
  if (!movable(site, reader, tensor, from) || !from.region.layout->complete()) return std::nullopt;
  const ConversionStep* step = only_step(site, tensor, from, need, CollectiveKind::kAllGather);
  if (step == nullptr || !cuts_rows_alone(from.region.layout, need, step->axes))
    return std::nullopt;
  std::vector<Fetched>& fetched = fetched_[site.place.index()];
  const auto known = std::ranges::find_if(fetched, [&](const Fetched& one) {
    const Op& other = facts_.graph().op(one.reader);
    return one.tensor == tensor && one.held.block == site.block &&
           *one.held.region.layout == need && name_alike(other, reader) &&
           need_of(facts_, other, naming_of(other)->begin) ==
               need_of(facts_, reader, naming->begin);
  });
  if (known != fetched.end()) return known->held;
  fetched.push_back({tensor, reader.id, move(site, reader, tensor, from, *step)});
  return fetched.back().held;
}

std::optional<Held> NamedRowsMover::scatter(const Site& site, TensorId tensor, const Held& from,
                                            const Layout& target) {
  const OpId producer = facts_.tensor(tensor).producer;
  if (!producer.valid()) return std::nullopt;
  const Op& op = facts_.graph().op(producer);
  const RowNaming* naming = naming_of(op);
  if (naming == nullptr || naming->output < 0 ||
      op.outputs[static_cast<size_t>(naming->output)] != tensor ||
      facts_.place_of(op) != site.place || !movable(site, op, tensor, from))
    return std::nullopt;
  const Layout& parts = from.region.layout;
  const ConversionStep* step =
      only_step(site, tensor, from, target, CollectiveKind::kReduceScatter);
  if (step == nullptr || parts.combiner != Combiner::kSum || parts.partial != step->axes ||
      !target.complete() || !cuts_rows_alone(target, parts, step->axes) ||
      axes_of_rows(op) != step->axes)
    return std::nullopt;
  return move(site, op, tensor, from, *step);
}

bool NamedRowsMover::movable(const Site& site, const Op& op, TensorId tensor,
                             const Held& from) const {
  const Tensor& moved = facts_.tensor(tensor);
  if (!facts_.one_micro_batch() || site.block.once() || site.when != When::kAlways ||
      !moved.producer.valid() || facts_.graph().is_parameter_gradient(tensor))
    return false;
  const OpPlan& plan = facts_.op_plan(op);
  const bool plain = plan.at.empty() && std::ranges::all_of(plan.dims, [](const DimSplit& split) {
                       return split.steps == 1 && !split.rims && split.grown.empty();
                     });
  const bool loaded = std::ranges::all_of(ids_of_naming(op), [&](size_t input) {
    return facts_.tensor(op.inputs[input]).role == Role::kInput;
  });
  const TensorPlan& rests = facts_.tensor_plan(tensor);
  const bool coded = rests.compress.any();
  return plain && loaded && !coded && rests.tier == Tier::kDevice &&
         rests.keep_over.numbers().empty() && !from.region.piece &&
         from.region.layout->windows.empty() && from.region.layout->at.empty();
}

// Returns the only step of a conversion if it is a collective of this kind; else null.
const ConversionStep* NamedRowsMover::only_step(const Site& site, TensorId tensor, const Held& from,
                                                const Layout& to, CollectiveKind kind) {
  if (!to.windows.empty() || !to.at.empty()) return nullptr;
  const auto& path = paths_.find(site.place, tensor, from.region.layout, to);
  return path.size() == 1 && !path[0].slice && path[0].kind == kind ? &path[0] : nullptr;
}

Axes NamedRowsMover::axes_of_rows(const Op& op) const {
  return need_of(facts_, op, naming_of(op)->begin).shards[0];
}

Held NamedRowsMover::move(const Site& site, const Op& op, TensorId tensor, const Held& from,
                          const ConversionStep& step) {
  TextIssue issue;
  issue.named.emplace().op = op.id;
  for (const size_t input : ids_of_naming(op)) {
    const TensorId ids = op.inputs[input];
    const Layout whole = Layout::whole(facts_.tensor(ids).dims.size());
    issue.named->ids.push_back(loads_.load(site, ids, whole).view());
  }
  Held next;
  next.region = {step.to, std::nullopt};
  next.buffer = writer_.new_buffer(site.place, tensor, "named", next.region);
  next.handle = issue.handle = writer_.new_handle();
  next.block = site.block;
  issue.kind = CollectiveKind::kExchange;
  issue.axes = step.axes;
  if (!from.region.layout->complete()) issue.combiner = from.region.layout->combiner;
  issue.transfers.push_back({tensor, from.view(), next.view()});
  writer_.emit(site, std::move(issue));
  return next;
}

}  // namespace tessera
