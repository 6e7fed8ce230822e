#include "tessera/program/roles/roles.h"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <utility>

#include "tessera/base/small_vector.h"
#include "tessera/program/roles/varying.h"

namespace tessera {
namespace {

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

struct Roles {
  const InstantiateInput& in;
  const ResolvedPlan& plan;
  const CopiedPlaces* copied;
  std::vector<RankClass>& out;
  std::vector<int32_t>& of_rank;
};

// Returns the original if the place is a copy (equal_stages.h), else the place itself.
PlaceId place_of_ops(const Roles& r, PlaceId place) {
  return r.copied != nullptr && r.copied->contains(place) ? r.copied->original : place;
}

// Returns whether the place is a copy that may take over the rank classes of its original. This is
// so if the meshes of the place, of the original and of their neighbours have the same axes,
// because all that the ranks have or exchange is then cut in the same way.
bool has_roles_of_original(const Roles& r, PlaceId place) {
  const PlaceId original = place_of_ops(r, place);
  if (original == place) return false;
  const Mesh& mesh = r.plan.places[original.index()].mesh;
  const auto& axes = mesh.axes;
  const int64_t first = mesh.rank_at(std::vector<int64_t>(axes.size(), 0));
  if (r.of_rank[static_cast<size_t>(first)] < 0) return false;  // the original has no classes yet
  const auto stands_alike = [&](PlaceId at) {
    return std::all_of(r.plan.places.begin() + at.value - 1, r.plan.places.begin() + at.value + 2,
                       [&](const Place& near) { return near.mesh.axes == axes; });
  };
  return stands_alike(original) && stands_alike(place);
}

void copy_roles(Roles& r, PlaceId place) {
  const Place &here = r.plan.places[place.index()],
              &there = r.plan.places[place_of_ops(r, place).index()];
  std::map<int32_t, int32_t> own;  // class of the original -> class of the copy
  int32_t last = -1;
  for_each_rank(there.mesh, [&](const std::vector<int64_t>&, int64_t rank) {
    const int32_t role = r.of_rank[static_cast<size_t>(rank)];
    if (role != last) own.emplace(role, 0);
    last = role;
  });
  for (auto& [role, copy] : own) {
    const RankClass& original = r.out[static_cast<size_t>(role)];
    const int64_t representative =
        here.mesh.rank_at(there.mesh.coordinates(original.representative));
    copy = static_cast<int32_t>(r.out.size());
    r.out.push_back({here.stages, static_cast<int>(representative), original.ranks});
  }
  const int64_t distance = here.mesh.first_device - there.mesh.first_device;  // equal axes
  for_each_rank(there.mesh, [&](const std::vector<int64_t>&, int64_t rank) {
    r.of_rank[static_cast<size_t>(rank + distance)] = own.at(r.of_rank[static_cast<size_t>(rank)]);
  });
}

// Adds the classes of the ranks at one place.
void add_roles(Roles& r, PlaceId place) {
  const Mesh& mesh = (*r.in.texts)[place.index()].mesh;
  const std::vector<Varying> varying = varying_at(r.in, place, place_of_ops(r, place));
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
    const auto [it, fresh] = known.try_emplace(std::move(sizes), r.out.size());
    if (fresh) {
      r.out.push_back(
          {r.plan.places[place.index()].stages, static_cast<int>(mesh.rank_at(coordinates)), 0});
    }
    r.out[it->second].ranks += ranks;
    role[product] = static_cast<int32_t>(it->second);
  }
  for_each_rank(mesh, [&](const std::vector<int64_t>& at, int64_t rank) {
    size_t product = 0;
    for (size_t a = 0; a < alike.size() && products > 1; ++a)
      product = product * alike[a].sets.size() + alike[a].set_of(at[a]);
    r.of_rank[static_cast<size_t>(rank)] = role[product];
  });
}

// Splits classes until all ranks of a class exchange messages with ranks of the same classes.
// Planned routes can make this necessary. For example, if 12 receivers have 8 senders, two
// receivers with equal programs may differ in that the sender of only one of them serves another
// rank too.
void tell_peers_apart(const InstantiateInput& in, std::vector<RankClass>& classes,
                      std::vector<int32_t>& of_rank) {
  std::vector<std::shared_ptr<const CrossRoutes>> crossings;  // each once
  for (const PlaceText& text : *in.texts) {
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

}  // namespace

bool several_places(const ResolvedPlan& plan) {
  return std::any_of(plan.rows.begin(), plan.rows.end(),
                     [](const auto& row) { return row.size() > 1; });
}

std::vector<RankClass> find_roles(const InstantiateInput& in, const CopiedPlaces* copied,
                                  std::vector<int32_t>& of_rank) {
  std::vector<RankClass> out;
  Roles r{in, *in.plan, copied, out, of_rank};
  of_rank.assign(static_cast<size_t>(r.plan.ranks), -1);
  for (const std::vector<PlaceId>& row : r.plan.rows) {
    if (row.size() != 1) continue;
    if (has_roles_of_original(r, row[0])) {
      copy_roles(r, row[0]);
    } else {
      add_roles(r, row[0]);
    }
  }
  for (int64_t rank = 0; several_places(r.plan) && rank < r.plan.ranks; ++rank) {
    RankClass alone{{}, static_cast<int>(rank), 1};
    const auto places = r.plan.places_of(rank);
    if (places.size() <= 1) continue;
    for (PlaceId place : places) {
      const auto& stages = r.plan.places[place.index()].stages;
      alone.stages.insert(alone.stages.end(), stages.begin(), stages.end());
    }
    std::sort(alone.stages.begin(), alone.stages.end());
    of_rank[static_cast<size_t>(rank)] = static_cast<int32_t>(out.size());
    out.push_back(std::move(alone));
  }
  tell_peers_apart(in, out, of_rank);
  return out;
}

}  // namespace tessera
