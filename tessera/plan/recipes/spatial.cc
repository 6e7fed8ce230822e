// Spatial parallelism: images and volumes cut in space (docs/theory/hybrid-3d-cnn.md).
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "tessera/graph/kinds.h"
#include "tessera/plan/recipes/families.h"
#include "tessera/plan/recipes/parts.h"

namespace tessera::recipes {
namespace {

// The arguments, which are axes too, from the outermost spatial dim to the innermost.
constexpr std::array<const char*, 3> kSpace = {"d", "h", "w"};

// The names of the dims over which the model convolves, outermost first: those of the convolution
// with the most of them.
std::vector<std::string> spatial_dims(const Graph& graph) {
  std::vector<std::string> most;
  for (const Op& op : graph.ops()) {
    if (op.phase != Phase::kForward || info_of(op).work != WorkClass::kConvolution) continue;
    // x and y have batch dims, channels and places; the weight has none of the places.
    std::vector<std::string> dims;
    for (const DimGroup& group : op.annotation.outputs[0].dims) {
      const int dim = group.front();
      const bool placed =
          op.annotation.inputs[0].contains(dim) && !op.annotation.inputs[1].contains(dim);
      const OpDim& of = op.annotation.dims[static_cast<size_t>(dim)];
      if (placed && (of.window || !dims.empty())) dims.push_back(of.name);
    }
    if (dims.size() > most.size()) most = dims;
  }
  return most;
}

// Forward ops from the first one on that `until` selects; -1: none does.
Result<int32_t> first_whole(const Graph& graph, const std::string& until) {
  if (until.empty()) return static_cast<int32_t>(graph.ops().size());
  const std::vector<OpId> found = selected(graph, until);
  if (found.empty()) {
    return invalid_input(fmt::format("until = \"{}\" selects no op of the model", until));
  }
  return std::ranges::min(found).value;
}

Result<PlanText> emit_spatial(const RecipeArguments& arguments, const Graph& graph) {
  Axes axes;
  for (const char* name : kSpace) axes.emplace_back(name, arguments.number(name));
  TESSERA_TRY(PlanText text, outer(arguments, graph, axes));
  const std::vector<std::string> dims = spatial_dims(graph);
  if (dims.empty()) {
    return invalid_input("expected convolutions over a dim 'height' (as resnet has), found none");
  }
  const size_t skipped = kSpace.size() - std::min(dims.size(), kSpace.size());
  for (size_t i = 0; i < skipped; ++i) {
    if (!text.has(kSpace[i])) continue;
    return invalid_input(fmt::format("{} = {}: the model has the {} spatial dims {} only",
                                     kSpace[i], text.size(kSpace[i]), dims.size(),
                                     fmt::join(dims, ", ")));
  }
  TESSERA_TRY(const int32_t end, first_whole(graph, arguments.text("until")));
  TESSERA_TRY_VOID(data_parallel(text, graph));
  std::vector<bool> cut(graph.ops().size(), false);
  for (size_t i = skipped; i < kSpace.size(); ++i) {
    const std::string& name = dims[i - skipped];
    const int64_t ranks = text.size(kSpace[i]);
    if (ranks == 1) continue;
    const int64_t least = ranks * arguments.number("least");
    std::vector<OpId> ops;
    for (const Op& op : graph.ops()) {
      if (op.phase != Phase::kForward || op.id.value >= end) continue;
      const int dim = op.annotation.find(name);
      if (dim < 0 || op.annotation.dims[static_cast<size_t>(dim)].size < least) continue;
      ops.push_back(op.id);
      cut[op.id.index()] = true;
    }
    if (ops.empty()) {
      return invalid_input(fmt::format("{} = {} leaves no op whose dim '{}' has {} elements",
                                       kSpace[i], ranks, name, least));
    }
    text.split(alternatives(patterns_of(graph, ops, name)), name, kSpace[i]);
  }
  // Behind the last op that is cut in space each rank has samples of its own.
  const auto last = std::find(cut.rbegin(), cut.rend(), true);
  std::vector<OpId> behind;
  for (const Op& op : graph.ops()) {
    const bool later = cut.rend() - last <= static_cast<std::ptrdiff_t>(op.id.index());
    if (op.phase == Phase::kForward && later && op.annotation.find("batch") >= 0)
      behind.push_back(op.id);
  }
  if (!behind.empty() && arguments.flag("samples"))
    text.split(alternatives(patterns_of(graph, behind, "batch")), "batch", "dp,d,h,w");
  zero(text, arguments.number("zero"), "dp,d,h,w");
  return text;
}

}  // namespace

std::vector<Recipe> spatial_recipes() {
  RecipeArgument until;
  until.name = "until";
  until.otherwise = "";
  until.meaning = "pattern of ops: from the first of them on nothing is cut in space";
  until.is_text = true;
  return {{"spatial",
           "samples cut in space: convolutions and pools exchange halos, norms their statistics",
           with_outer({number("d", "1", "pieces of the depth of volumes"),
                       number("h", "1", "pieces of the height"),
                       number("w", "1", "pieces of the width"),
                       number("least", "2",
                              "elements that a piece has at least; smaller maps are "
                              "not cut"),
                       until,
                       flag("samples", true,
                            "what follows the last op that is cut in space works on samples of "
                            "its own rank")}),
           emit_spatial}};
}

}  // namespace tessera::recipes
