#include "tessera/plan/recipes/maps.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "tessera/graph/kinds.h"
#include "tessera/plan/recipes/parts.h"

namespace tessera::recipes {
namespace {

// The axes for spatial dims, from the outermost dim to the innermost; the arguments have the
// same names.
constexpr std::array<const char*, 3> kSpace = {"d", "h", "w"};

const OpDim& op_dim(const Op& op, int dim) { return op.annotation.dims[static_cast<size_t>(dim)]; }

// Returns the names of the spatial dims of the model, outermost first. They are the dims along
// which the convolution with the most such dims moves its kernel.
std::vector<std::string> spatial_dims(const Graph& graph) {
  std::vector<std::string> most;
  for (const Op& op : graph.ops()) {
    if (!is_convolution(op)) continue;
    // Spatial dims are in x and y but not in the weight. Batch dims are, too; they come before the
    // first dim that is read through a window.
    std::vector<std::string> dims;
    for (const DimGroup& group : op.annotation.outputs[0].dims) {
      const int dim = group.front();
      const bool placed =
          op.annotation.inputs[0].contains(dim) && !op.annotation.inputs[1].contains(dim);
      const OpDim& of = op_dim(op, dim);
      if (placed && (of.window || !dims.empty())) dims.push_back(of.name);
    }
    if (dims.size() > most.size()) most = dims;
  }
  return most;
}

// `Channels` knows for each tensor between convolutions which of its dims counts channels, and
// whether the convolution that made them is in turn 0 or 1 (the layers take turns, see cut_channels
// in maps.h).
class Channels {
 public:
  explicit Channels(const Graph& graph) : graph_(graph), of_(graph.tensors().size()) {}

  struct Known {
    int position = -1;  // index of the tensor's dim of channels; -1: not known
    int turn = 1;       // 1 if no convolution has made it, as if a convolution of the second turn
                        // had: the first convolution is then in the first turn
  };
  const Known& of(TensorId tensor) const { return of_[tensor.index()]; }

  // Records the channels of the outputs of the op. Returns the op dim that makes these channels; -1
  // if there is none or it may not be cut.
  int follow(const Op& op) {
    if (is_convolution(op)) {
      const ChannelDims dims = channel_dims(op);
      const int turn = of(op.inputs[0]).turn;
      if (dims.out >= 0) return mark(op, dims.out, 1 - turn);
      return dims.both >= 0 ? mark(op, dims.both, turn) : -1;
    }
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      const Known& known = of(op.inputs[i]);
      if (known.position < 0) continue;
      const DimGroup& group = op.annotation.inputs[i].dims[static_cast<size_t>(known.position)];
      if (group.size() == 1) return mark(op, group.front(), known.turn);
    }
    return -1;
  }

 private:
  int mark(const Op& op, int dim, int turn) {
    if (op_dim(op, dim).mark == Mark::kFrozen) return -1;
    bool made = false;
    for (size_t o = 0; o < op.outputs.size(); ++o) {
      const std::vector<DimGroup>& dims = op.annotation.outputs[o].dims;
      const auto at = std::ranges::find_if(
          dims, [dim](const DimGroup& group) { return !group.empty() && group.front() == dim; });
      if (at == dims.end()) continue;
      of_[op.outputs[o].index()] = {static_cast<int>(at - dims.begin()), turn};
      made = true;
    }
    return made ? dim : -1;
  }

  const Graph& graph_;
  std::vector<Known> of_;  // by tensor: what is known
};

}  // namespace

bool is_convolution(const Op& op) {
  return op.phase == Phase::kForward && info_of(op).work == WorkClass::kConvolution;
}

ChannelDims channel_dims(const Op& op) {
  ChannelDims out;
  const Annotation& a = op.annotation;
  for (int dim = 0; dim < static_cast<int>(a.dims.size()); ++dim) {
    const bool x = a.inputs[0].contains(dim), y = a.outputs[0].contains(dim);
    if (!a.inputs[1].contains(dim) || op_dim(op, dim).mark == Mark::kFrozen) continue;
    if (x && y) out.both = dim;
    if (x && !y) out.in = dim;
    if (!x && y) out.out = dim;
  }
  return out;
}

bool has_halo(const OpDim& dim) { return dim.window && dim.window->kernel > dim.window->stride; }

std::vector<int64_t> halos_before(const Graph& graph, const std::string& dim) {
  std::vector<int64_t> out(graph.ops().size(), 0);
  for (const Op& op : graph.ops()) {
    if (op.phase != Phase::kForward) continue;
    int64_t& most = out[op.id.index()];
    for (TensorId input : op.inputs) {
      const OpId maker = graph.tensor(input).producer;
      if (maker.valid()) most = std::max(most, out[maker.index()]);
    }
    const int d = op.annotation.find(dim);
    if (d >= 0 && has_halo(op_dim(op, d))) ++most;
  }
  return out;
}

std::vector<OpId> CutMaps::behind(const Graph& graph) const {
  const auto last = std::find(ops.rbegin(), ops.rend(), true);
  std::vector<OpId> out;
  for (const Op& op : graph.ops()) {
    const bool later = ops.rend() - last <= static_cast<std::ptrdiff_t>(op.id.index());
    if (op.phase == Phase::kForward && later && op.annotation.find("batch") >= 0)
      out.push_back(op.id);
  }
  return out;
}

Result<CutMaps> uncut_maps(const RecipeArguments& arguments, const Graph& graph) {
  if (spatial_dims(graph).empty()) {
    return invalid_input("expected convolutions over a dim 'height' (as resnet has), found none");
  }
  CutMaps cut;
  cut.ops.resize(graph.ops().size(), false);
  cut.end = static_cast<int32_t>(graph.ops().size());
  const std::string& until = arguments.text("until");
  if (until.empty()) return cut;
  const std::vector<OpId> found = selected(graph, until);
  if (found.empty()) {
    return invalid_input(fmt::format("until = \"{}\" selects no op of the model", until));
  }
  cut.end = std::ranges::min(found).value;
  return cut;
}

namespace {

// Adds a time loop to the ops that read the dim through windows, so that each rank works on one
// tile of its piece after the other.
Status cut_tiles(PlanText& text, const Graph& graph, const RecipeArguments& arguments,
                 const std::string& dim, const std::string& axis, const CutMaps& cut) {
  const int64_t tiles = arguments.number("tiles");
  if (tiles == 1) return {};
  const int64_t least = std::max(tiles, arguments.number("least")) * text.size(axis);
  std::vector<OpId> ops;
  for (const Op& op : graph.ops()) {
    if (op.phase != Phase::kForward || op.id.value >= cut.end) continue;
    const int d = op.annotation.find(dim);
    if (d >= 0 && op_dim(op, d).window && op_dim(op, d).size >= least) ops.push_back(op.id);
  }
  if (ops.empty()) {
    return invalid_input(
        fmt::format("tiles = {} leaves no op whose dim '{}' is read through "
                    "windows and has {} elements",
                    tiles, dim, least));
  }
  text.split(alternatives(patterns_of(graph, ops, dim)), dim,
             fmt::format("{},time:{}", axis, tiles));
  return {};
}

// Adds entries by which, in each chain of `layers` ops with halos, all ops but the last compute the
// halo that the next op needs.
Status compute_halos(PlanText& text, const Graph& graph, const RecipeArguments& arguments,
                     const std::string& dim, const std::string& over,
                     const std::vector<OpId>& cut) {
  const int64_t layers = arguments.number("layers");
  if (layers == 1) return {};
  const std::vector<int64_t> before = halos_before(graph, dim);
  std::vector<OpId> inside;
  for (OpId op : cut) {
    if (before[op.index()] % layers != 0) inside.push_back(op);
  }
  if (inside.empty()) {
    return invalid_input(fmt::format(
        "layers = {} leaves no op along the dim '{}' whose halo could be computed", layers, dim));
  }
  text.split(alternatives(patterns_of(graph, inside, dim)), dim, over);
  text.splits.back().emplace_back("halo", "\"compute\"");
  return {};
}

}  // namespace

Status cut_space(PlanText& text, const Graph& graph, const RecipeArguments& arguments,
                 CutMaps& cut) {
  if (arguments.flag("rims") && arguments.number("tiles") > 1) {
    return invalid_input(
        fmt::format("rims = true: expected tiles = 1, found {}", arguments.number("tiles")));
  }
  const std::vector<std::string> dims = spatial_dims(graph);
  const size_t skipped = kSpace.size() - std::min(dims.size(), kSpace.size());
  for (size_t i = 0; i < skipped; ++i) {
    if (!text.has(kSpace[i])) continue;
    return invalid_input(fmt::format("{} = {}: the model has the {} spatial dims {} only",
                                     kSpace[i], text.size(kSpace[i]), dims.size(),
                                     fmt::join(dims, ", ")));
  }
  // Index of the dim with tiles: the outermost one that is cut, else the outermost.
  size_t tiled = skipped;
  while (tiled < kSpace.size() && !text.has(kSpace[tiled])) ++tiled;
  if (tiled == kSpace.size()) tiled = skipped;
  for (size_t i = skipped; i < kSpace.size(); ++i) {
    const std::string& name = dims[i - skipped];
    const int64_t ranks = text.size(kSpace[i]);
    if (ranks == 1) {
      if (i == tiled) TESSERA_TRY_VOID(cut_tiles(text, graph, arguments, name, kSpace[i], cut));
      continue;
    }
    const int64_t least = ranks * arguments.number("least");
    std::vector<OpId> ops;
    for (const Op& op : graph.ops()) {
      if (op.phase != Phase::kForward || op.id.value >= cut.end) continue;
      const int dim = op.annotation.find(name);
      if (dim < 0 || op_dim(op, dim).size < least) continue;
      ops.push_back(op.id);
      cut.ops[op.id.index()] = true;
    }
    if (ops.empty()) {
      return invalid_input(fmt::format("{} = {} leaves no op whose dim '{}' has {} elements",
                                       kSpace[i], ranks, name, least));
    }
    const std::string over =
        fmt::format("{}{}", kSpace[i], arguments.flag("rims") ? ",time:rims" : "");
    text.split(alternatives(patterns_of(graph, ops, name)), name, over);
    TESSERA_TRY_VOID(compute_halos(text, graph, arguments, name, over, ops));
    if (i == tiled) TESSERA_TRY_VOID(cut_tiles(text, graph, arguments, name, kSpace[i], cut));
  }
  return {};
}

Status cut_channels(PlanText& text, const Graph& graph, const RecipeArguments& arguments,
                    CutMaps& cut) {
  if (!text.has("channels") && !text.has("filters")) return {};
  const bool takes_turns = text.has("channels") && text.has("filters");
  // `summed` and `made` return the axes over which a convolution of a turn cuts the
  // channels that it sums over and makes. `between` returns those for the ops between it
  // and the next convolution.
  const auto summed = [&](int turn) {
    return std::string(takes_turns && turn == 1 ? "filters" : "channels");
  };
  const auto made = [&](int turn) {
    return std::string(takes_turns && turn == 1 ? "channels" : "filters");
  };
  const auto between = [&](int turn) { return made(turn) + "," + summed(turn); };
  // For each pair (dim, axes): the ops whose dim is cut over these axes. The pairs are in the order
  // of their first ops.
  std::vector<std::pair<std::pair<std::string, std::string>, std::vector<OpId>>> cuts;
  const auto add = [&](const Op& op, int dim, const std::string& over) {
    if (dim < 0) return;
    if (text.product(over) > 1) cut.ops[op.id.index()] = true;
    const std::pair key{op_dim(op, dim).name, over};
    auto at = std::ranges::find(cuts, key, [](const auto& one) { return one.first; });
    if (at == cuts.end()) at = cuts.insert(cuts.end(), {key, {}});
    at->second.push_back(op.id);
  };
  Channels channels(graph);
  bool any = false;
  std::vector<OpId> read;
  for (const Op& op : graph.ops()) {
    if (op.phase != Phase::kForward || op.id.value >= cut.end) continue;
    const int followed = channels.follow(op);
    if (is_convolution(op) && channel_dims(op).both < 0) {
      any = true;
      const int turn =
          channels.of(op.outputs[0]).position >= 0 ? channels.of(op.outputs[0]).turn : 0;
      add(op, channel_dims(op).in, summed(turn));
      add(op, channel_dims(op).out, made(turn));
      if (const OpId before = graph.tensor(op.inputs[0]).producer; before.valid())
        read.push_back(before);
    } else if (followed >= 0) {
      add(op, followed, between(channels.of(op.outputs[0]).turn));
    }
  }
  if (!any) return invalid_input("expected convolutions with channels (as resnet has), found none");
  for (const auto& [key, ops] : cuts) {
    if (text.product(key.second) == 1) continue;
    text.split(alternatives(patterns_of(graph, ops, key.first)), key.first, key.second);
  }
  if (text.has("filters") && arguments.flag("keep") && !read.empty())
    text.keep(alternatives(patterns_of(graph, read)), "micro_batch");
  return {};
}

std::vector<RecipeArgument> map_arguments(std::string_view first) {
  RecipeArgument until;
  until.name = "until";
  until.otherwise = "";
  until.meaning = "pattern of ops: from the first of them on maps are not cut";
  until.is_text = true;
  std::vector<RecipeArgument> out = with_outer(
      {number("d", "1", "pieces of the depth of volumes"), number("h", "1", "pieces of the height"),
       number("w", "1", "pieces of the width"),
       number("least", "2", "elements that a piece has at least; smaller maps are not cut"), until,
       flag("samples", true,
            "what follows the last op that is cut works on samples of its own rank")});
  out.push_back(number("tiles", "1",
                       "tiles of the outermost cut dim in each piece, one after the other: those "
                       "that need no halo are computed while it arrives"));
  out.push_back(
      flag("rims", false, "what needs no halo is computed while halos arrive, the rims behind it"));
  out.push_back(number("layers", "1",
                       "ops with halos, one behind the other, for which one wider halo is "
                       "exchanged; what lies in the halos is computed twice"));
  out.push_back(number("channels", "1", "pieces of the channels that convolutions sum over"));
  out.push_back(number("filters", "1", "pieces of the channels that convolutions make"));
  out.push_back(
      flag("keep", false, "what filters gather in the forward pass is kept for the backward pass"));
  const auto named = std::ranges::find(out, first, [](const RecipeArgument& a) { return a.name; });
  if (named != out.end()) {
    named->otherwise.reset();
    std::rotate(out.begin(), named, named + 1);
  }
  return out;
}

}  // namespace tessera::recipes
