// Which linear ops work on parts, and how.
#include "tessera/program/walk/linear_parts.h"

#include <algorithm>
#include <utility>

#include "tessera/graph/kinds.h"
#include "tessera/program/walk/needs.h"

namespace tessera {

std::optional<std::vector<Held>> parts_of(const Facts& facts, const Holds& holds, const Op& op) {
  const PlaceId place = facts.place_of(op);
  const OpPlan& plan = facts.op_plan(op);
  if (op.info == nullptr || !is_linear(op) || op.inputs.empty() || op.outputs.size() != 1 ||
      loop_of(plan).exists())
    return std::nullopt;
  std::vector<Held> parts;
  for (TensorId input : op.inputs) {
    const Tensor& tensor = facts.tensor(input);
    if (tensor.role == Role::kInput) return std::nullopt;
    if (tensor.dims.size() != facts.tensor(op.outputs[0]).dims.size()) return std::nullopt;
    const Held* held = holds.home(place, input);
    if (held == nullptr) return std::nullopt;
    const Layout& layout = held->region.layout;
    if (layout.complete() || layout.combiner != Combiner::kSum) return std::nullopt;
    if (!parts.empty() && layout != parts[0].region.layout) return std::nullopt;
    parts.push_back(*held);
  }
  Layout complete = parts[0].region.layout;
  complete.partial.clear();
  if (normalise(complete, facts.mesh(place), facts.shape(op.outputs[0])) != need_of(facts, op, 0)) {
    const bool named = std::any_of(plan.dims.begin(), plan.dims.end(),
                                   [](const DimSplit& s) { return s.entry >= 0; });
    if (named) return std::nullopt;
  }
  return parts;
}

Held work_on_parts(Facts& facts, TextWriter& writer, const Op& op, const std::vector<Held>& parts) {
  const Site site = facts.site(op);
  const Layout& layout = parts[0].region.layout;
  facts.split_as(op, layout);
  TextCompute compute;
  compute.op = op.id;
  for (const Held& part : parts) compute.inputs.push_back(part.view());
  Held made;
  made.region = {layout, std::nullopt};
  made.buffer = writer.new_buffer(site.place, op.outputs[0], "", made.region);
  made.block = site.block;
  compute.outputs.push_back({made.view(), op.outputs[0], Write::kSet, 0, 1});
  writer.emit(site, std::move(compute));
  return made;
}

}  // namespace tessera
