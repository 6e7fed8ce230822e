#include "tessera/program/roles/varying.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <tuple>

#include "tessera/graph/kinds.h"
#include "tessera/graph/order.h"
#include "tessera/program/crossing.h"

namespace tessera {
namespace {

void add_axes(Axes& to, const Axes& axes) {
  for (AxisId axis : axes) {
    if (std::find(to.begin(), to.end(), axis) == to.end()) to.push_back(axis);
  }
}

// Adds a Varying for a dim that is read through windows. Its sizes are how much of the dim a rank
// has, what the rank takes from each peer, and what each peer takes from the rank. A peer is named
// by its distance from the rank, so that ranks that are not at the border have equal sizes.
void add_halo(const PlaceText& text, const Shared<Layout>& layout, size_t d, int64_t size,
              std::set<std::string>& seen, std::vector<Varying>& out) {
  const Layout::DimWindow& window = *layout->window(d);
  std::string name = std::to_string(size);
  const auto add_name = [&name](const WindowRead& read) {
    name += fmt::format("~{}/{}/{}/{}/{}", static_cast<int>(read.use), read.window.kernel,
                        read.window.stride, read.window.padding, read.size);
  };
  add_name(window.read);
  std::ranges::for_each(window.behind, add_name);
  for (AxisId axis : layout->shards[d]) name += ":" + std::to_string(axis.value);
  if (!seen.insert(name).second) return;
  out.push_back(
      {layout->shards[d], [&mesh = text.mesh, layout, d, size](const std::vector<int64_t>& at) {
         const Axes& axes = layout->shards[d];
         const auto needs = [&](const std::vector<int64_t>& rank) {
           return dim_interval(*layout, d, size, mesh, rank);
         };
         const auto holds = [&](const std::vector<int64_t>& rank) {
           return cut_interval(size, layout->grain[d], axes, mesh, rank);
         };
         std::vector<int64_t> sizes{needs(at).size, holds(at).size};
         int64_t pieces = 1, mine = 0;
         for (AxisId axis : axes) {
           mine = mine * mesh.axis(axis).size + at[axis.index()];
           pieces *= mesh.axis(axis).size;
         }
         std::vector<int64_t> peer = at;
         for (int64_t p = 0; p < pieces; ++p) {
           int64_t rest = p;
           for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
             peer[axis->index()] = rest % mesh.axis(*axis).size;
             rest /= mesh.axis(*axis).size;
           }
           const int64_t takes = intersect(needs(at), holds(peer)).size;
           const int64_t gives = intersect(holds(at), needs(peer)).size;
           if (p == mine || (takes <= 0 && gives <= 0)) continue;
           sizes.insert(sizes.end(), {p - mine, takes, gives});
         }
         return sizes;
       }});
}

// Returns a Varying for each pin: an axis along which a buffer or an op exists at one coordinate
// only. It tells the ranks at this coordinate from the others.
std::vector<Varying> pins(const PlaceText& text, const ResolvedPlan& resolved,
                          const std::vector<OpPlan>& plans, PlaceId place) {
  std::set<AxisPin> found;
  for (const TextBuffer& buffer : text.buffers)
    found.insert(buffer.region.layout->at.begin(), buffer.region.layout->at.end());
  for (const OpPlan& plan : plans) {
    if (resolved.place_of(plan.stage) == place) found.insert(plan.at.begin(), plan.at.end());
  }
  std::vector<Varying> out;
  for (const AxisPin& pin : found) {
    out.push_back({{pin.axis}, [pin](const std::vector<int64_t>& coordinates) {
                     return std::vector<int64_t>{
                         coordinates[pin.axis.index()] == pin.coordinate ? 1 : 0};
                   }});
  }
  return out;
}

// Returns a Varying for each way in which a dim of a buffer is cut unevenly.
std::vector<Varying> uneven_cuts(const PlaceText& text,
                                 const std::vector<std::vector<int64_t>>& shapes) {
  std::vector<Varying> out;
  std::set<std::string> seen;
  for (const TextBuffer& buffer : text.buffers) {
    const std::vector<int64_t>& shape = shapes[buffer.tensor.index()];
    const Region& region = buffer.region;
    for (size_t d = 0; d < shape.size(); ++d) {
      const bool steps = region.piece && region.piece->dim == d;
      // The steps of a loop cut the interval that the first `prefix` axes give a rank. The other
      // axes cut the same interval independently of the steps, so a cut is even only if both
      // numbers of pieces divide the extent.
      const Axes& axes = region.layout->shards[d];
      int64_t shards = 1, pieces = steps ? region.piece->steps : 1;
      for (size_t a = 0; a < axes.size(); ++a) {
        const int64_t size = text.mesh.axis(axes[a]).size;
        shards *= size;
        if (steps && a < region.piece->prefix) pieces *= size;
      }
      const bool limited = steps && region.piece->queries > 0;
      const int64_t grains = shape[d] / region.layout->grain[d];
      if (region.layout->window(d) != nullptr) {
        add_halo(text, region.layout, d, shape[d], seen, out);
        continue;
      }
      if (grains % std::lcm(shards, pieces) == 0 && !limited) continue;
      Varying cut{region.layout->shards[d], {}};
      std::string name = std::to_string(shape[d]) + "/" + std::to_string(region.layout->grain[d]);
      if (steps) {
        for (const SkewAxis& skew : region.piece->skew) add_axes(cut.axes, {skew.axis});
        if (limited) add_axes(cut.axes, region.piece->query_axes);
        name += "@" + std::to_string(region.piece->step) + "of" + std::to_string(pieces) + "," +
                std::to_string(region.piece->prefix) + "," +
                std::to_string(region.piece->skew.size()) + "," +
                std::to_string(region.piece->queries);
      }
      for (AxisId axis : cut.axes) name += ":" + std::to_string(axis.value);
      for (const AxisPin& pin : region.layout->at) {
        add_axes(cut.axes, {pin.axis});
        name += fmt::format("!{}={}", pin.axis.value, pin.coordinate);
      }
      if (!seen.insert(name).second) continue;
      cut.falls = !region.piece && region.layout->at.empty();
      cut.sizes = [&text, &region, shape, d](const std::vector<int64_t>& coordinates) {
        return std::vector<int64_t>{evaluate(region, text.mesh, shape, coordinates).dims[d].size};
      };
      out.push_back(std::move(cut));
    }
  }
  return out;
}

bool is_split(const OpPlan& plan) {
  return std::ranges::any_of(plan.dims, [](const DimSplit& split) { return split.split(); });
}

// Returns a Varying for each op that is causal or has a band and whose queries or keys are cut. How
// many keys a rank reads, and how many points it computes, depends on where its queries are in the
// sequence. (If the dim is reordered, graph/order.h, pieces of the same size have about the same
// number of points.)
std::vector<Varying> causal_cuts(const Graph& graph, const ResolvedPlan& resolved,
                                 const std::vector<OpPlan>& plans, PlaceId place,
                                 const ShapeRule& shapes) {
  const Mesh& mesh = resolved.places[place.index()].mesh;
  std::vector<Varying> out;
  for (const Op& op : graph.ops()) {
    const OpPlan& plan = plans[op.id.index()];
    if (resolved.place_of(plan.stage) != place || !is_split(plan)) continue;
    const auto& dims = op.annotation.dims;
    const auto marked = std::ranges::find_if(dims, [](const OpDim& d) { return d.causal_of >= 0; });
    const bool reads_fewer = marked != dims.end(), masks = leaves_out_points(op);
    if (!reads_fewer && !masks) continue;
    const QueryKey pair = reads_fewer
                              ? QueryKey{marked->causal_of, static_cast<int>(marked - dims.begin())}
                              : *query_key_of(op);
    const auto kv = static_cast<size_t>(pair.key), q = static_cast<size_t>(pair.query);
    Varying cut;
    int64_t steps = 1;
    for (const DimSplit* split : {&plan.dims[kv], &plan.dims[q]}) {
      add_axes(cut.axes, split->axes);
      for (const SkewAxis& skew : split->skew) add_axes(cut.axes, {skew.axis});
      steps = std::max(steps, split->steps);
    }
    if (cut.axes.empty()) continue;
    cut.sizes = [&op, &plan, &shapes, &mesh, kv, q, steps, reads_fewer,
                 masks](const std::vector<int64_t>& coordinates) {
      std::vector<int64_t> sizes;
      for (int64_t step = 0; step < steps; ++step) {
        const Box box = compute_box(op, plan, shapes, mesh, coordinates, step);
        if (masks) sizes.push_back(std::llround(2 * visible_points(op, box)));
        sizes.push_back(box.dims[kv].size);
        if (!reads_fewer) continue;
        const int64_t end = std::min(box.dims[kv].end(), box.dims[q].end());
        sizes.push_back(std::max<int64_t>(0, end - box.dims[kv].begin));
      }
      return sizes;
    };
    out.push_back(std::move(cut));
  }
  return out;
}

// Returns a Varying for each crossing in which ranks do not just send to their twins
// (crosses_to_twins). Its sizes are those of a rank's pieces, with the peers relative to the rank.
std::vector<Varying> uneven_crossings(const ResolvedPlan& plan, const PlaceText& text,
                                      const ShapeRule& shapes) {
  using Sizes = std::vector<int64_t>;
  std::vector<Varying> out;
  std::set<std::tuple<bool, PlaceId, Sizes, Layout, Layout, int64_t>> seen;
  for (const auto& [ref, block] : text.blocks) {
    for (const TextInstruction& instruction : block) {
      const auto* found = std::get_if<TextCross>(&instruction.body);
      if (found == nullptr) continue;
      const auto cross = std::make_shared<const TextCross>(of_size(*found, shapes.smaller));
      const Mesh& from_mesh = plan.places[cross->from_place.index()].mesh;
      const Mesh& to_mesh = plan.places[cross->to_place.index()].mesh;
      if (crosses_to_twins(*cross, from_mesh, to_mesh)) continue;
      const Sizes shape = shapes.shape(cross->tensor);
      const PlaceId other = cross->sends ? cross->to_place : cross->from_place;
      const auto& chunk = cross->to.region.piece;
      if (!seen.insert({cross->sends, other, shape, cross->from.region.layout,
                        cross->to.region.layout, chunk ? chunk->step : 0})
               .second) {
        continue;
      }
      Varying what;
      for (size_t a = 0; a < text.mesh.axes.size(); ++a) what.axes.push_back(AxisId(a));
      what.sizes = [cross, shape, &from_mesh, &to_mesh, &mine = text.mesh](const Sizes& at) {
        Sizes sizes;
        const auto add = [&](const Mesh& there, const Sizes& peer, const Box& region) {
          sizes.push_back(region.volume());
          for (size_t a = 0; a < there.axes.size(); ++a) {
            const bool alike = a < mine.axes.size() && mine.axes[a].size == there.axes[a].size;
            const int64_t size = there.axes[a].size;
            sizes.push_back(alike ? (peer[a] - at[a] + size) % size : peer[a]);
          }
        };
        if (!cross->sends) {
          for (const CrossPiece& piece : cross_sources(*cross, from_mesh, to_mesh, shape, at))
            add(from_mesh, piece.source, piece.region);
          return sizes;
        }
        for (const Sizes& to : cross_receivers(*cross, from_mesh, to_mesh, at)) {
          for (const CrossPiece& piece : cross_sources(*cross, from_mesh, to_mesh, shape, to)) {
            if (piece.source == at) add(to_mesh, to, piece.region);
          }
        }
        return sizes;
      };
      out.push_back(std::move(what));
    }
  }
  return out;
}

}  // namespace

std::vector<Varying> varying_at(const InstantiateInput& in, PlaceId place, PlaceId of_ops) {
  const PlaceText& text = (*in.texts)[place.index()];
  std::vector<Varying> out = pins(text, *in.plan, *in.ops, of_ops);
  const auto add = [&out](std::vector<Varying> more) {
    std::move(more.begin(), more.end(), std::back_inserter(out));
  };
  for (const InstantiateInput::Sizes& size : *in.sizes) {
    add(uneven_cuts(text, size.shapes));
    add(causal_cuts(*in.graph, *in.plan, *in.ops, of_ops, size.rule));
    add(uneven_crossings(*in.plan, text, size.rule));
  }
  return out;
}

}  // namespace tessera
