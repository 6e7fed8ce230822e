// Finds the linear ops that work on parts, and writes them.
#include "tessera/program/walk/linear_parts.h"

#include <algorithm>
#include <utility>

#include "tessera/graph/kinds.h"
#include "tessera/program/walk/needs.h"

namespace tessera {

namespace {

// Returns whether less is sent if the sum moves instead of its terms. Moving a term costs nothing
// if another reader has already brought it into the needed layout.
bool sends_less_as_sum(const Facts& facts, const Holds& holds, ConversionPaths& paths,
                       const Op& sum, const Layout& made) {
  if (!paths.moves_once(sum, made)) return false;
  const Site site = facts.site(sum);
  const Layout need = need_of(facts, sum, 0);
  double terms = 0;
  for (TensorId term : sum.inputs) {
    const Held* held = holds.best(site.place, term, site.block, &need);
    terms += paths.cost(site.place, term, held->region.layout, need);
  }
  return paths.cost(site.place, sum.inputs[0], made, need) < terms;
}

// Returns whether the op may run with its operands and its result cut as the layout says. For each
// tensor dim that is cut, this dim must be made of the same op dim in all operands and in the
// result, and the op dim must not be frozen or read through a window.
bool may_stay_cut(const Op& op, const Layout& layout) {
  if (!layout.windows.empty()) return false;
  const Annotation& annotation = op.annotation;
  for (size_t d = 0; d < layout.shards.size(); ++d) {
    if (layout.shards[d].empty()) continue;
    const int dim = leading_dim(annotation, annotation.outputs[0].dims[d]);
    if (dim < 0 || annotation.dims[static_cast<size_t>(dim)].mark == Mark::kFrozen) return false;
    const bool same = std::ranges::all_of(annotation.inputs, [&](const OperandDims& input) {
      return leading_dim(annotation, input.dims[d]) == dim && !input.is_windowed(d);
    });
    if (!same) return false;
  }
  return true;
}

}  // namespace

bool takes_parts(const Op& op) {
  return op.info != nullptr && is_linear(op) &&
         std::ranges::none_of(op.annotation.inputs,
                              [](const OperandDims& input) { return !input.windowed.empty(); });
}

std::optional<std::vector<Held>> parts_of(const Facts& facts, const Holds& holds,
                                          ConversionPaths& paths, const Op& op) {
  const PlaceId place = facts.place_of(op);
  const OpPlan& plan = facts.op_plan(op);
  if (!takes_parts(op) || op.inputs.empty() || op.outputs.size() != 1 || loop_of(plan).exists())
    return std::nullopt;
  std::vector<Held> parts;
  for (TensorId input : op.inputs) {
    const Tensor& tensor = facts.tensor(input);
    if (tensor.role == Role::kInput) return std::nullopt;
    if (tensor.dims.size() != facts.tensor(op.outputs[0]).dims.size()) return std::nullopt;
    const Held* held = holds.home(place, input);
    if (held == nullptr) return std::nullopt;
    const Layout& layout = held->region.layout;
    if (layout.combiner != Combiner::kSum) return std::nullopt;
    if (!parts.empty() && layout != parts[0].region.layout) return std::nullopt;
    parts.push_back(*held);
  }
  if (!may_stay_cut(op, *parts[0].region.layout)) return std::nullopt;
  if (parts[0].region.layout->complete()) {
    if (sends_less_as_sum(facts, holds, paths, op, *parts[0].region.layout)) return parts;
    return std::nullopt;
  }
  Layout complete = parts[0].region.layout;
  complete.partial.clear();
  if (normalise(complete, facts.mesh(place), facts.shape(op.outputs[0])) != need_of(facts, op, 0)) {
    if (plan.named()) return std::nullopt;
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
