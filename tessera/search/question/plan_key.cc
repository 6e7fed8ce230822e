#include "tessera/search/question/plan_key.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace tessera {
namespace {

using Names = std::vector<std::string>;

bool names(const Names& list, const std::string& axis) {
  return std::find(list.begin(), list.end(), axis) != list.end();
}

// Calls act(list) for every list of axes that the plan's entries have.
template <class PlanType, class Act>
void for_each_list(PlanType& plan, const Act& act) {
  for (auto& split : plan.splits) act(split.over);
  for (auto& store : plan.stores) {
    if (store.over) act(*store.over);
    if (store.keep_over) act(*store.keep_over);
  }
}

// Returns whether the plan depends on the axis's own coordinates: it is the stage axis, or a skew
// or a pin names it.
bool is_singled_out(const Plan& plan, const std::string& axis) {
  const auto skews = [&](const SplitEntry& split) {
    return std::any_of(split.skew.begin(), split.skew.end(),
                       [&](const std::string& name) { return name == axis || name == "-" + axis; });
  };
  return axis == plan.stage_axis || std::any_of(plan.splits.begin(), plan.splits.end(), skews) ||
         std::any_of(plan.pins.begin(), plan.pins.end(),
                     [&](const PinEntry& pin) { return pin.axis == axis; });
}

// Returns whether every list that names one of the axes has `inner` right after `outer`.
bool stand_together(const Plan& plan, const std::string& outer, const std::string& inner) {
  bool together = true;
  for_each_list(plan, [&](const Names& list) {
    const auto at = std::find(list.begin(), list.end(), outer);
    const bool follows = at != list.end() && at + 1 != list.end() && *(at + 1) == inner;
    together = together && (follows || (at == list.end() && !names(list, inner)));
  });
  return together;
}

class Joiner {
 public:
  Joiner(Plan& plan, const Graph& forward) : plan_(plan), forward_(forward) {}

  void leave_out_single_ranks() {
    const bool has_stages = !plan_.stages.empty() || !plan_.place.empty();
    std::erase_if(plan_.mesh, [&](const auto& axis) {
      const auto& [name, size] = axis;
      if (size > 1 || (name == plan_.stage_axis ? has_stages : is_singled_out(plan_, name)))
        return false;
      for_each_list(plan_, [&](Names& list) { std::erase(list, name); });
      return true;
    });
  }

  void join_neighbours() {
    for (size_t a = 0; a + 1 < plan_.mesh.size();) {
      const auto [outer, outer_size] = plan_.mesh[a];
      const auto [inner, inner_size] = plan_.mesh[a + 1];
      if (!may_join(outer, inner)) {
        ++a;
        continue;
      }
      for_each_list(plan_, [&, name = inner](Names& list) { std::erase(list, name); });
      plan_.mesh[a].second = outer_size * inner_size;
      plan_.mesh.erase(plan_.mesh.begin() + static_cast<std::ptrdiff_t>(a) + 1);
    }
  }

  void number_axes() {
    for (size_t a = 0; a < plan_.mesh.size(); ++a) {
      const std::string before = plan_.mesh[a].first;
      const std::string name = before == plan_.stage_axis ? "stage" : fmt::format("axis{}", a);
      const auto rename = [&](std::string& text) {
        if (text == before) text = name;
        if (text == "-" + before) text = "-" + name;
      };
      plan_.mesh[a].first = name;
      for_each_list(plan_, [&](Names& list) { std::for_each(list.begin(), list.end(), rename); });
      for (SplitEntry& split : plan_.splits)
        std::for_each(split.skew.begin(), split.skew.end(), rename);
      for (PinEntry& pin : plan_.pins) rename(pin.axis);
    }
    plan_.stage_axis = "stage";
  }

 private:
  int64_t product(const Names& axes) const {
    int64_t out = 1;
    for (const auto& [name, size] : plan_.mesh) out *= names(axes, name) ? size : 1;
    return out;
  }

  bool may_join(const std::string& outer, const std::string& inner) const {
    if (is_singled_out(plan_, outer) || is_singled_out(plan_, inner)) return false;
    if (!stand_together(plan_, outer, inner)) return false;
    const auto is_even = [&](const SplitEntry& split) {
      return !names(split.over, outer) || divides(split);
    };
    const auto rests_alike = [&](const StoreEntry& store) {
      return !store.over || !names(*store.over, outer) || (!store.dim && divides_parameters());
    };
    return std::all_of(plan_.splits.begin(), plan_.splits.end(), is_even) &&
           std::all_of(plan_.stores.begin(), plan_.stores.end(), rests_alike);
  }

  // Returns whether all pieces of the dim are equal. Unequal pieces would have other borders if one
  // joined axis cut the dim instead of two.
  bool divides(const SplitEntry& split) const {
    const auto cuts = [&](const LoopEntry& loop) { return loop.dim == split.dim; };
    if (std::any_of(plan_.loops.begin(), plan_.loops.end(), cuts)) return false;
    const int64_t pieces =
        product(split.over) * (split.dim == plan_.micro_batch_dim ? plan_.micro_batches : 1);
    const auto& ops = forward_.ops();
    return std::all_of(ops.begin(), ops.end(), [&](const Op& op) {
      const auto& dims = op.annotation.dims;
      return std::all_of(dims.begin(), dims.end(), [&](const OpDim& dim) {
        return dim.name != split.dim || dim.size % pieces == 0;
      });
    });
  }

  // Returns whether all axes together divide the first dim of every parameter. Two axes of a store
  // entry then cut this dim one after the other, as one joined axis would.
  bool divides_parameters() const {
    const auto loops = [](const SplitEntry& split) { return split.steps > 1; };
    if (std::any_of(plan_.splits.begin(), plan_.splits.end(), loops)) return false;
    int64_t ranks = 1;
    for (const auto& [name, size] : plan_.mesh) ranks *= name == plan_.stage_axis ? 1 : size;
    const auto& tensors = forward_.tensors();
    return std::all_of(tensors.begin(), tensors.end(), [&](const Tensor& tensor) {
      return tensor.role != Role::kParameter || tensor.dims.empty() ||
             tensor.dims.front().size % ranks == 0;
    });
  }

  Plan& plan_;
  const Graph& forward_;
};

}  // namespace

std::string plan_key(Plan plan, const Graph& forward) {
  const bool own_meshes = std::any_of(plan.stages.begin(), plan.stages.end(),
                                      [](const StageEntry& stage) { return !stage.mesh.empty(); });
  if (!own_meshes && plan.device_order.axes.empty()) {
    Joiner joiner(plan, forward);
    joiner.leave_out_single_ranks();
    joiner.join_neighbours();
    joiner.number_axes();
  }
  return to_toml(plan);
}

}  // namespace tessera
