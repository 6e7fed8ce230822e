#include "tessera/program/lower.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <tuple>

#include "tessera/base/check.h"
#include "tessera/graph/kinds.h"
#include "tessera/graph/order.h"
#include "tessera/program/copies/copied_stages.h"
#include "tessera/program/copies/equal_stages.h"
#include "tessera/program/crossing.h"
#include "tessera/program/instantiate/member_boxes.h"
#include "tessera/program/needs.h"
#include "tessera/program/passes/send_waits.h"
#include "tessera/program/place_check.h"
#include "tessera/program/place_text.h"
#include "tessera/program/walk.h"

namespace tessera {

struct Lowering::Impl {
  std::shared_ptr<const Graph> graph, whole;
  ResolvedPlan plan;
  std::optional<CopiedPlaces> copied;  // places whose ops `graph` lacks
  Analysis analysis;
  std::vector<PlaceText> texts;              // by place
  int64_t micro_batch_size = 0, larger = 0;  // as in Program
  std::vector<InstantiateInput::Sizes> micro_batch_sizes;
  mutable MemberBoxes boxes;

  const ShapeRule& rule() const { return analysis.shapes; }
  std::shared_ptr<PathCache> paths;  // may be null
  Status write_texts(std::vector<TensorId> fetch);
  void find_micro_batch_sizes();

  bool several_places() const;
  // Returns the original if the place is a copy (equal_stages.h), else the place itself.
  PlaceId place_of_ops(PlaceId place) const;
  // Adds the classes of the ranks at one place to `out`. Sets `of_rank`, by rank, to the index into
  // `out`.
  void add_roles(PlaceId place, std::vector<RankClass>& out, std::vector<int32_t>& of_rank) const;
  bool has_roles_of_original(PlaceId place, const std::vector<int32_t>& of_rank) const;
  void copy_roles(PlaceId place, std::vector<RankClass>& out, std::vector<int32_t>& of_rank) const;
  void tell_peers_apart(std::vector<RankClass>& classes, std::vector<int32_t>& of_rank) const;
  std::vector<RankClass> roles(std::vector<int32_t>& of_rank) const;
  InstantiateInput input() const {
    return {graph.get(),      &plan,  &analysis.ops, &texts, &micro_batch_sizes,
            micro_batch_size, larger, &boxes};
  }
};

Lowering::Lowering() : impl_(std::make_unique<Impl>()) {}
Lowering::~Lowering() = default;
Lowering::Lowering(Lowering&&) noexcept = default;
Lowering& Lowering::operator=(Lowering&&) noexcept = default;

Result<Lowering> Lowering::create(std::shared_ptr<const Graph> graph, ResolvedPlan plan,
                                  LowerOptions options) {
  if (options.equal_stages_once && options.fetch.empty()) {
    if (auto shorter = without_copies(*graph, plan)) {
      Lowering lowering;
      Impl& impl = *lowering.impl_;
      impl.graph = std::move(shorter->graph);
      impl.whole = graph;
      impl.plan = std::move(shorter->plan);
      impl.copied = shorter->copied;
      impl.paths = options.paths;
      if (impl.write_texts({})) return lowering;
      // It failed because some stage is not equal after all, or because the plan is wrong. All
      // stages are lowered below, so that an error names what the user wrote.
    }
  }
  Lowering lowering;
  Impl& impl = *lowering.impl_;
  impl.graph = impl.whole = std::move(graph);
  impl.plan = std::move(plan);
  impl.paths = std::move(options.paths);
  TESSERA_TRY_VOID(impl.write_texts(std::move(options.fetch)));
  return lowering;
}

Status Lowering::Impl::write_texts(std::vector<TensorId> fetch) {
  TESSERA_TRY(analysis, analyse(*graph, plan));
  analysis.shapes.graph = graph.get();
  texts = write_place_texts({graph, &plan, std::move(fetch), paths.get()}, analysis);
  std::vector<BlockOrder> orders;
  for (size_t place = 0; place < texts.size(); ++place) orders.emplace_back(plan, PlaceId(place));
  for (size_t place = 0; place < texts.size(); ++place) {
    PlaceText& text = texts[place];
    // If ranks are at several places, instructions must stay in the order of writing, because the
    // texts of a rank's places are merged in this order. So these two passes are left out then.
    if (!several_places()) {
      if (text.blocks.contains(BlockKind::kUpdate)) issue_together(text, BlockKind::kUpdate);
      gather_second_steps(text, rule(), plan.plan.bucket_bytes);
    }
    if (plan.plan.prefetch) prefetch_at_rest(text, *graph, orders[place], *plan.plan.prefetch);
    bucket_collectives(text, rule(), orders[place], plan.plan.bucket_bytes);
  }
  find_micro_batch_sizes();
  int next_handle = 0;
  for (const PlaceText& text : texts) next_handle = std::max(next_handle, end_of_handles(text));
  for (size_t place = 0; place < texts.size(); ++place)
    stage_tiers(texts[place], rule(), plan, orders[place], next_handle);
  if (copied) {
    for (size_t place = 0; place < texts.size(); ++place) await_needs(texts[place], orders[place]);
    if (!copy_places({graph.get(), &plan, &orders, &texts}, *copied, next_handle))
      return invalid_input("places are not alike");
    place_send_waits(texts, plan);
  } else {
    place_waits(texts, plan, orders);
  }
#ifndef NDEBUG
  for (size_t place = 0; place < texts.size(); ++place) {
    const Status sound = check(texts, PlaceId(place), *graph, plan);
    TESSERA_CHECK(sound.has_value(), "{}", sound.error().message);
  }
#endif
  return {};
}

void Lowering::Impl::find_micro_batch_sizes() {
  for (const Tensor& tensor : graph->tensors()) {
    for (const Dim& dim : tensor.dims) {
      if (dim.name != plan.plan.micro_batch_dim) continue;
      micro_batch_size = rule().micro_batch(dim.size);
      larger = dim.size % plan.plan.micro_batches;
    }
  }
  micro_batch_sizes.push_back({rule(), analysis.tensor_shapes});
  if (larger == 0) return;
  ShapeRule smaller = rule();
  smaller.smaller = true;
  micro_batch_sizes.push_back({smaller, {}});
  for (const Tensor& tensor : graph->tensors())
    micro_batch_sizes.back().shapes.push_back(smaller.shape(tensor.id));
}

Result<Program> Lowering::lower(int rank, bool offsets) const {
  if (rank < 0 || rank >= impl_->plan.ranks || impl_->plan.places_of(rank).empty()) {
    return invalid_input("rank " + std::to_string(rank) + " is in no stage's mesh (ranks: " +
                         std::to_string(impl_->plan.ranks) + ")");
  }
  return instantiate(impl_->input(), rank, offsets);
}

namespace {

// A `Varying` is something in the text whose sizes differ between ranks. `sizes` gives the sizes
// for coordinates; only coordinates on `axes` matter.
struct Varying {
  Axes axes;
  std::function<std::vector<int64_t>(const std::vector<int64_t>& coordinates)> sizes;
  // Whether no size is larger at a larger coordinate, as of plain cuts: where two coordinates have
  // equal sizes, those between them have the same.
  bool falls = false;
};

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

// The coordinates of a mesh's axis in sets of alike ones.
struct AlikeCoordinates {
  struct Set {
    int64_t first = 0, coordinates = 0;  // the smallest coordinate, and how many there are
  };
  std::vector<Set> sets;
  std::vector<size_t> of;  // by coordinate: index into `sets`; empty: all coordinates are alike
  size_t set_of(int64_t coordinate) const {
    return of.empty() ? 0 : of[static_cast<size_t>(coordinate)];
  }
};

// Finds alike coordinates on the axes of a mesh: they give equal sizes whatever the other
// coordinates are. On an axis that was looked at before, only one coordinate of each set is tried,
// because the others give the same sizes.
class AlikeOnAxes {
 public:
  AlikeOnAxes(const Mesh& mesh, const std::vector<Varying>& varying)
      : mesh_(mesh), varying_(varying), out_(mesh.axes.size()) {
    std::vector<size_t> order(mesh.axes.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::stable_sort(order, std::greater<>(), [&](size_t a) { return mesh.axes[a].size; });
    for (const size_t a : order) find(AxisId(a));
  }
  const std::vector<AlikeCoordinates>& axes() const { return out_; }

 private:
  using Sizes = std::vector<int64_t>;

  // Returns the sizes of `what` if the coordinate on `axis` is `coordinate`, for all combinations
  // of coordinates on its other axes.
  Sizes profile(const Varying& what, AxisId axis, int64_t coordinate) const {
    Axes others = what.axes;
    erase_value(others, axis);
    std::vector<int64_t> coordinates(mesh_.axes.size(), 0);
    Sizes out;
    coordinates[axis.index()] = coordinate;
    const std::function<void(size_t)> visit = [&](size_t next) {
      if (next == others.size()) {
        const Sizes sizes = what.sizes(coordinates);
        out.insert(out.end(), sizes.begin(), sizes.end());
        return;
      }
      const size_t other = others[next].index();
      for (const AlikeCoordinates::Set& set : out_[other].sets) {
        coordinates[other] = set.first;
        visit(next + 1);
      }
      const int64_t size = out_[other].sets.empty() ? mesh_.axes[other].size : 0;
      for (int64_t c = 0; c < size; ++c) {
        coordinates[other] = c;
        visit(next + 1);
      }
    };
    visit(0);
    return out;
  }

  // Adds the coordinates from `from` + 1 to `to` at which the sizes of `what` differ from those at
  // the coordinate before.
  void add_changes(const Varying& what, AxisId axis, int64_t from, const Sizes& at_from, int64_t to,
                   const Sizes& at_to, std::set<int64_t>& out) const {
    if (what.falls && at_from == at_to) return;
    if (to - from == 1) {
      if (at_from != at_to) out.insert(to);
      return;
    }
    const int64_t middle = from + (to - from) / 2;
    const Sizes at_middle = profile(what, axis, middle);
    add_changes(what, axis, from, at_from, middle, at_middle, out);
    add_changes(what, axis, middle, at_middle, to, at_to, out);
  }

  void find(AxisId axis) {
    const int64_t size = mesh_.axis(axis).size;
    AlikeCoordinates& alike = out_[axis.index()];
    std::vector<const Varying*> here;
    for (const Varying& what : varying_) {
      if (std::ranges::find(what.axes, axis) != what.axes.end()) here.push_back(&what);
    }
    std::set<int64_t> starts{0};  // of runs of coordinates with equal sizes
    for (const Varying* what : here) {
      if (size == 1) break;
      add_changes(*what, axis, 0, profile(*what, axis, 0), size - 1, profile(*what, axis, size - 1),
                  starts);
    }
    if (starts.size() == 1) {
      alike.sets = {{0, size}};
      return;
    }
    std::map<std::vector<Sizes>, size_t> known;
    for (auto start = starts.begin(); start != starts.end(); ++start) {
      std::vector<Sizes> sizes;
      for (const Varying* what : here) sizes.push_back(profile(*what, axis, *start));
      const auto [it, fresh] = known.try_emplace(std::move(sizes), alike.sets.size());
      if (fresh) alike.sets.push_back({*start, 0});
      const int64_t end = std::next(start) == starts.end() ? size : *std::next(start);
      alike.sets[it->second].coordinates += end - *start;
      alike.of.resize(static_cast<size_t>(end), it->second);
    }
  }

  const Mesh& mesh_;
  const std::vector<Varying>& varying_;
  std::vector<AlikeCoordinates> out_;  // by axis; without sets: not looked at yet
};

// Calls visit(coordinates, rank) for the ranks of a mesh, in row-major order.
template <class Visit>
void for_each_rank(const Mesh& mesh, const Visit& visit) {
  std::vector<int64_t> at(mesh.axes.size(), 0);
  int64_t rank = mesh.first_device;
  for (;;) {
    visit(at, rank);
    size_t a = mesh.axes.size();
    for (; a > 0; --a) {
      const MeshAxis& axis = mesh.axes[a - 1];
      rank += axis.stride;
      if (++at[a - 1] < axis.size) break;
      rank -= axis.size * axis.stride;
      at[a - 1] = 0;
    }
    if (a == 0) return;
  }
}

}  // namespace

// Returns the rank classes. Two coordinates on an axis are alike if they give equal sizes whatever
// the other coordinates are. A combination of such sets of alike coordinates, one for each axis, is
// a class, and combinations that give equal sizes are joined into one class. A rank at several
// places is a class by itself.
std::vector<RankClass> Lowering::roles(std::vector<int32_t>* of_rank) const {
  std::vector<int32_t> unused;
  return impl_->roles(of_rank == nullptr ? unused : *of_rank);
}

std::vector<RankClass> Lowering::Impl::roles(std::vector<int32_t>& of_rank) const {
  std::vector<RankClass> out;
  of_rank.assign(static_cast<size_t>(plan.ranks), -1);
  for (const std::vector<PlaceId>& row : plan.rows) {
    if (row.size() != 1) continue;
    if (has_roles_of_original(row[0], of_rank)) {
      copy_roles(row[0], out, of_rank);
    } else {
      add_roles(row[0], out, of_rank);
    }
  }
  for (int64_t rank = 0; several_places() && rank < plan.ranks; ++rank) {
    RankClass alone{{}, static_cast<int>(rank), 1};
    const auto places = plan.places_of(rank);
    if (places.size() <= 1) continue;
    for (PlaceId place : places) {
      const auto& stages = plan.places[place.index()].stages;
      alone.stages.insert(alone.stages.end(), stages.begin(), stages.end());
    }
    std::sort(alone.stages.begin(), alone.stages.end());
    of_rank[static_cast<size_t>(rank)] = static_cast<int32_t>(out.size());
    out.push_back(std::move(alone));
  }
  tell_peers_apart(out, of_rank);
  return out;
}

// Splits classes until all ranks of a class exchange messages with ranks of the same classes.
// Planned routes can make this necessary. For example, if 12 receivers have 8 senders, two
// receivers with equal programs may differ in that the sender of only one of them serves another
// rank too.
void Lowering::Impl::tell_peers_apart(std::vector<RankClass>& classes,
                                      std::vector<int32_t>& of_rank) const {
  std::vector<std::shared_ptr<const CrossRoutes>> crossings;  // each once
  for (const PlaceText& text : texts) {
    for (const auto& [ref, block] : text.blocks) {
      for (const TextInstruction& instruction : block) {
        const auto* cross = std::get_if<TextCross>(&instruction.body);
        if (cross == nullptr || cross->sends) continue;
        for (const auto& routes : {cross->routes, cross->smaller_routes}) {
          if (routes && std::ranges::find(crossings, routes) == crossings.end())
            crossings.push_back(routes);
        }
      }
    }
  }
  for (size_t before = 0; !crossings.empty() && before != classes.size();) {
    before = classes.size();
    std::vector<std::vector<std::vector<int32_t>>> peers(of_rank.size());  // by crossing
    for (const auto& routes : crossings) {
      for (auto& seen : peers) seen.emplace_back();
      for (const CrossRoute& route : *routes) {
        const auto from = static_cast<size_t>(route.from), to = static_cast<size_t>(route.to);
        peers[from].back().push_back(of_rank[to]);
        peers[to].back().push_back(of_rank[from]);
      }
    }
    const std::vector<int32_t> old = of_rank;
    std::map<std::pair<int32_t, std::vector<std::vector<int32_t>>>, int32_t> known;
    for (int32_t c = 0; c < static_cast<int32_t>(before); ++c) {
      const auto rank = static_cast<size_t>(classes[static_cast<size_t>(c)].representative);
      known.emplace(std::make_pair(c, peers[rank]), c);
    }
    for (RankClass& one : classes) one.ranks = 0;
    for (size_t rank = 0; rank < of_rank.size(); ++rank) {
      if (old[rank] < 0) continue;
      const auto [it, fresh] = known.emplace(std::make_pair(old[rank], peers[rank]),
                                             static_cast<int32_t>(classes.size()));
      if (fresh) {
        classes.push_back(
            {classes[static_cast<size_t>(old[rank])].stages, static_cast<int>(rank), 0});
      }
      of_rank[rank] = it->second;
      ++classes[static_cast<size_t>(it->second)].ranks;
    }
  }
}

PlaceId Lowering::Impl::place_of_ops(PlaceId place) const {
  return copied && copied->contains(place) ? copied->original : place;
}

// Returns whether the place is a copy that may take over the rank classes of its original. This is
// so if the meshes of the place, of the original and of their neighbours have the same axes,
// because all that the ranks have or exchange is then cut in the same way.
bool Lowering::Impl::has_roles_of_original(PlaceId place,
                                           const std::vector<int32_t>& of_rank) const {
  const PlaceId original = place_of_ops(place);
  if (original == place) return false;
  const Mesh& mesh = plan.places[original.index()].mesh;
  const auto& axes = mesh.axes;
  const int64_t first = mesh.rank_at(std::vector<int64_t>(axes.size(), 0));
  if (of_rank[static_cast<size_t>(first)] < 0) return false;  // the original has no classes yet
  const auto stands_alike = [&](PlaceId at) {
    return std::all_of(plan.places.begin() + at.value - 1, plan.places.begin() + at.value + 2,
                       [&](const Place& near) { return near.mesh.axes == axes; });
  };
  return stands_alike(original) && stands_alike(place);
}

void Lowering::Impl::copy_roles(PlaceId place, std::vector<RankClass>& out,
                                std::vector<int32_t>& of_rank) const {
  const Place &here = plan.places[place.index()], &there = plan.places[place_of_ops(place).index()];
  std::map<int32_t, int32_t> own;  // class of the original -> class of the copy
  int32_t last = -1;
  for_each_rank(there.mesh, [&](const std::vector<int64_t>&, int64_t rank) {
    const int32_t role = of_rank[static_cast<size_t>(rank)];
    if (role != last) own.emplace(role, 0);
    last = role;
  });
  for (auto& [role, copy] : own) {
    const RankClass& original = out[static_cast<size_t>(role)];
    const int64_t representative =
        here.mesh.rank_at(there.mesh.coordinates(original.representative));
    copy = static_cast<int32_t>(out.size());
    out.push_back({here.stages, static_cast<int>(representative), original.ranks});
  }
  const int64_t distance = here.mesh.first_device - there.mesh.first_device;  // equal axes
  for_each_rank(there.mesh, [&](const std::vector<int64_t>&, int64_t rank) {
    of_rank[static_cast<size_t>(rank + distance)] = own.at(of_rank[static_cast<size_t>(rank)]);
  });
}

bool Lowering::Impl::several_places() const {
  return std::any_of(plan.rows.begin(), plan.rows.end(),
                     [](const auto& row) { return row.size() > 1; });
}

void Lowering::Impl::add_roles(PlaceId place, std::vector<RankClass>& out,
                               std::vector<int32_t>& of_rank) const {
  const PlaceText& text = texts[place.index()];
  const Mesh& mesh = text.mesh;
  const PlaceId of_ops = place_of_ops(place);
  std::vector<Varying> varying = pins(text, plan, analysis.ops, of_ops);
  for (const InstantiateInput::Sizes& size : micro_batch_sizes) {
    for (Varying& cut : uneven_cuts(text, size.shapes)) varying.push_back(std::move(cut));
    for (Varying& cut : causal_cuts(*graph, plan, analysis.ops, of_ops, size.rule))
      varying.push_back(std::move(cut));
    for (Varying& crossing : uneven_crossings(plan, text, size.rule))
      varying.push_back(std::move(crossing));
  }
  const AlikeOnAxes found(mesh, varying);
  const std::vector<AlikeCoordinates>& alike = found.axes();
  // The products of sets of the axes, in the order of their first coordinates. A set of an axis is
  // a digit of a product's number.
  size_t products = 1;
  for (const AlikeCoordinates& axis : alike) products *= axis.sets.size();
  std::map<std::vector<std::vector<int64_t>>, size_t> known;  // sizes -> index in out
  std::vector<int32_t> role(products);                        // by product
  for (size_t product = 0; product < products; ++product) {
    std::vector<int64_t> coordinates(alike.size());
    int64_t ranks = 1;
    size_t rest = product;
    for (size_t a = alike.size(); a-- > 0; rest /= alike[a].sets.size()) {
      const AlikeCoordinates::Set& set = alike[a].sets[rest % alike[a].sets.size()];
      coordinates[a] = set.first;
      ranks *= set.coordinates;
    }
    std::vector<std::vector<int64_t>> sizes;
    for (const Varying& what : varying) sizes.push_back(what.sizes(coordinates));
    const auto [it, fresh] = known.try_emplace(std::move(sizes), out.size());
    if (fresh) {
      out.push_back(
          {plan.places[place.index()].stages, static_cast<int>(mesh.rank_at(coordinates)), 0});
    }
    out[it->second].ranks += ranks;
    role[product] = static_cast<int32_t>(it->second);
  }
  for_each_rank(mesh, [&](const std::vector<int64_t>& at, int64_t rank) {
    size_t product = 0;
    for (size_t a = 0; a < alike.size() && products > 1; ++a)
      product = product * alike[a].sets.size() + alike[a].set_of(at[a]);
    of_rank[static_cast<size_t>(rank)] = role[product];
  });
}

const std::vector<PlaceText>& Lowering::texts() const { return impl_->texts; }
const Graph& Lowering::graph() const { return *impl_->graph; }
const Graph& Lowering::whole_graph() const { return *impl_->whole; }
const ResolvedPlan& Lowering::plan() const { return impl_->plan; }

}  // namespace tessera
