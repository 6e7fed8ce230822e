#include "tessera/export/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "tessera/base/text.h"
#include "tessera/export/recognize.h"
#include "tessera/graph/kinds.h"

namespace tessera {
namespace {

constexpr std::array kParts = {AxisPart::kPp, AxisPart::kReplicas, AxisPart::kDp,
                               AxisPart::kCp, AxisPart::kEp,       AxisPart::kTp};

// For each part, into how many pieces its axes cut a dim.
using Pieces = std::map<AxisPart, int64_t>;

std::string pieces_text(const Pieces& pieces) {
  std::vector<std::string> out;
  for (const auto& [part, count] : pieces)
    out.push_back(fmt::format("{} {}", part_name(part), count));
  return out.empty() ? "whole" : "over " + join(out, ", ");
}

AxisPart part_of_name(std::string_view axis) {
  for (const AxisPart part : kParts) {
    if (part_name(part) == axis) return part;
  }
  return AxisPart::kCp;  // "sp" is the context axis
}

// Counts differences in small things, and keeps the name of the first.
struct Small {
  size_t count = 0;
  std::string first;
  void add(const std::string& name) {
    if (count++ == 0) first = name;
  }
};

class Comparer {
 public:
  Comparer(const Described& given, const ResolvedPlan& expected, const Graph& graph)
      : given_(given), expected_(expected), graph_(graph) {}

  Result<Differences> run(bool masters) {
    TESSERA_TRY_VOID(compare_places());
    for (const Op& op : graph_.ops()) {
      if (op.phase != Phase::kForward) continue;
      TESSERA_TRY_VOID(compare_stage(op));
      for (size_t d = 0; d < op.annotation.dims.size(); ++d) TESSERA_TRY_VOID(compare_dim(op, d));
    }
    for (const Tensor& tensor : graph_.tensors()) {
      if (masters || tensor.role != Role::kParameter) TESSERA_TRY_VOID(compare_rest(tensor));
      if (masters) TESSERA_TRY_VOID(compare_keep(tensor));
    }
    note(small_ops_, "op", "is", "are", "cut otherwise than the target does");
    note(small_tensors_, "vector", "rests", "rest", "otherwise than the target keeps them");
    if (stepped_tensors_.count > 0) {
      out_.notes.push_back(
          fmt::format("'{}'{} in shards over several axes, which gather one after the other; the "
                      "target gathers over "
                      "one axis",
                      stepped_tensors_.first,
                      stepped_tensors_.count == 1
                          ? " rests"
                          : fmt::format(" and {} more tensors rest", stepped_tensors_.count - 1)));
    }
    if (!masters) {
      out_.notes.emplace_back(
          "the target keeps the wide masters of narrow parameters in shards with the optimizer "
          "state; the plan keeps them whole");
    }
    return std::move(out_);
  }

 private:
  void note(const Small& small, std::string_view noun, std::string_view is, std::string_view are,
            std::string_view how) {
    if (small.count == 0) return;
    const bool one = small.count == 1;
    out_.notes.push_back(fmt::format("{} small {}{} ({}{}) {} {}", small.count, noun,
                                     one ? "" : "s", small.first, one ? "" : ", ...",
                                     one ? is : are, how));
  }

  tl::unexpected<Error> refuse(const std::string& where, const std::string& why) const {
    return invalid_input(fmt::format("{}: {}", where, why));
  }

  Status compare_places() const {
    const auto places = [](const ResolvedPlan& plan) {
      std::vector<PlaceId> out;
      for (const Stage& stage : plan.stages) out.push_back(stage.place);
      return out;
    };
    if (places(given_.resolved) == places(expected_)) return {};
    const Plan& plan = given_.plan;
    const std::string where = plan.place_line > 0
                                  ? fmt::format("{}:{} (place)", plan.file, plan.place_line)
                              : plan.stages.empty() ? plan.file
                                                    : entry_text(plan, plan.stages.back());
    return refuse(
        where, fmt::format("targets have {} stages in the places that the schedule '{}' "
                           "wants; found {}",
                           expected_.stages.size(), plan.schedule, given_.resolved.stages.size()));
  }

  Status compare_stage(const Op& op) {
    const OpPlan& given = given_.resolved.ops[op.id.index()];
    const OpPlan& expected = expected_.ops[op.id.index()];
    if (given.stage == expected.stage) return {};
    if (!is_weighty(op)) {
      small_ops_.add(op.path);
      return {};
    }
    const Plan& plan = given_.plan;
    const std::string where =
        given.stage_entry >= 0
            ? entry_text(plan, plan.stages[static_cast<size_t>(given.stage_entry)])
            : plan.file;
    return refuse(where, fmt::format("targets put whole blocks on stages, the embedding on the "
                                     "first and the head on the last: expected '{}' on stage {}, "
                                     "found {}",
                                     op.path, expected.stage.value, given.stage.value));
  }

  Pieces given_pieces(const Op& op, const DimSplit& split) const {
    const Mesh& mesh =
        given_.resolved.stages[given_.resolved.ops[op.id.index()].stage.index()].mesh;
    Pieces out;
    for (const AxisId id : split.axes) {
      const MeshAxis& axis = mesh.axis(id);
      if (axis.size > 1)
        out.try_emplace(given_.parts.part.at(axis.name), 1).first->second *= axis.size;
    }
    return out;
  }
  Pieces expected_pieces(const Op& op, const DimSplit& split) const {
    const Mesh& mesh = expected_.stages[expected_.ops[op.id.index()].stage.index()].mesh;
    Pieces out;
    for (const AxisId id : split.axes) {
      const MeshAxis& axis = mesh.axis(id);
      if (axis.size > 1) out.try_emplace(part_of_name(axis.name), 1).first->second *= axis.size;
    }
    return out;
  }

  // Returns the entry of the given plan that a difference is about: the entry that cuts the dim or,
  // if there is none, the first entry that cuts anything over one of the expected parts.
  std::string entry_of(const DimSplit& split, const Pieces& expected) const {
    const Plan& plan = given_.plan;
    if (split.entry >= 0) return entry_text(plan, plan.splits[static_cast<size_t>(split.entry)]);
    for (const SplitEntry& entry : plan.splits) {
      for (const std::string& axis : entry.over) {
        const auto part = given_.parts.part.find(axis);
        if (part != given_.parts.part.end() && expected.contains(part->second))
          return entry_text(plan, entry);
      }
    }
    return plan.file;
  }

  Status compare_dim(const Op& op, size_t d) {
    const DimSplit& given = given_.resolved.ops[op.id.index()].dims[d];
    const DimSplit& expected = expected_.ops[op.id.index()].dims[d];
    const Pieces found = given_pieces(op, given), wanted = expected_pieces(op, expected);
    const bool same_steps = given.steps == expected.steps &&
                            (given.steps == 1 || given.order == expected.order) &&
                            given.rims == expected.rims;
    if (found == wanted && same_steps) return {};
    if (!is_weighty(op)) {
      small_ops_.add(op.path);
      return {};
    }
    const std::string& dim = op.annotation.dims[d].name;
    if (!same_steps) {
      return refuse(entry_of(given, wanted),
                    fmt::format("no target runs '{}' in {} steps along '{}': expected {}", op.path,
                                given.steps, dim, expected.steps));
    }
    return refuse(entry_of(given, wanted),
                  fmt::format("targets with these degrees have the dim '{}' of '{}' {}, the plan "
                              "has it {}",
                              dim, op.path, pieces_text(wanted), pieces_text(found)));
  }

  Pieces rest_pieces(const ResolvedPlan& resolved, const Tensor& tensor, bool given) const {
    Pieces out;
    for (const std::string& name : axes_at_rest(resolved, tensor)) {
      const AxisPart part = given ? given_.parts.part.at(name) : part_of_name(name);
      out.try_emplace(part, 1).first->second *= size_of(resolved, name);
    }
    return out;
  }
  static int64_t size_of(const ResolvedPlan& resolved, const std::string& name) {
    for (const Stage& stage : resolved.stages) {
      if (const AxisId id = stage.mesh.find(name); id.valid()) return stage.mesh.axis(id).size;
    }
    return 1;
  }

  Status compare_rest(const Tensor& tensor) {
    const bool rests = tensor.role == Role::kParameter || tensor.role == Role::kOptimizerState ||
                       graph_.is_parameter_gradient(tensor.id);
    if (!rests) return {};
    const Pieces found = rest_pieces(given_.resolved, tensor, true),
                 wanted = rest_pieces(expected_, tensor, false);
    if (found == wanted) {
      const auto axes = [&](const ResolvedPlan& resolved) {
        return axes_at_rest(resolved, tensor).size();
      };
      if (axes(given_.resolved) > axes(expected_)) stepped_tensors_.add(tensor.name);
      return {};
    }
    if (!is_matrix(tensor)) {
      small_tensors_.add(tensor.name);
      return {};
    }
    const int entry = given_.resolved.tensors[tensor.id.index()].over_entry;
    const Plan& plan = given_.plan;
    std::string where = plan.file;
    if (entry >= 0) {
      where = entry_text(plan, plan.stores[static_cast<size_t>(entry)]);
    } else if (!plan.stores.empty()) {
      where = entry_text(plan, plan.stores.front());
    }
    return refuse(where,
                  fmt::format("targets with these degrees keep '{}' {}, the plan keeps it {}",
                              tensor.name, pieces_text(wanted), pieces_text(found)));
  }

  Status compare_keep(const Tensor& tensor) const {
    const auto& found = given_.resolved.tensors[tensor.id.index()].keep;
    const auto& wanted = expected_.tensors[tensor.id.index()].keep;
    if (found == wanted) return {};
    const Plan& plan = given_.plan;
    const auto entry = std::find_if(plan.stores.begin(), plan.stores.end(),
                                    [](const StoreEntry& store) { return store.keep.has_value(); });
    return refuse(entry == plan.stores.end() ? plan.file : entry_text(plan, *entry),
                  fmt::format("targets with these degrees keep the copy '{}' {}, the plan {}",
                              tensor.name, wanted ? keep_name(*wanted) : "as it comes",
                              found ? keep_name(*found) : "as it comes"));
  }

  const Described& given_;
  const ResolvedPlan& expected_;
  const Graph& graph_;
  Small small_ops_, small_tensors_;
  Small stepped_tensors_;  // that rest over more axes than the target has for them
  Differences out_;
};

}  // namespace

std::string_view part_name(AxisPart part) {
  switch (part) {
    case AxisPart::kPp: return "pp";
    case AxisPart::kReplicas: return "replicas";
    case AxisPart::kDp: return "dp";
    case AxisPart::kCp: return "cp";
    case AxisPart::kEp: return "ep";
    case AxisPart::kTp: return "tp";
  }
  return "";
}

int64_t AxisParts::degree(AxisPart of) const {
  int64_t out = 1;
  for (const auto& [axis, has] : part) {
    if (has == of) out *= size.at(axis);
  }
  return out;
}

bool is_weighty(const Op& op) {
  switch (info_of(op).work.value_or(WorkClass::kMove)) {
    case WorkClass::kMatmul:
    case WorkClass::kConvolution:
    case WorkClass::kAttention:
    case WorkClass::kScan:
    case WorkClass::kLookup:
    case WorkClass::kLoss: return true;
    case WorkClass::kElementwise:
    case WorkClass::kNorm:
    case WorkClass::kRouting:
    case WorkClass::kOptimizer:
    case WorkClass::kMove: return false;
  }
  return false;
}

std::vector<std::string> axes_at_rest(const ResolvedPlan& resolved, const Tensor& tensor) {
  const TensorPlan& planned = resolved.tensors[tensor.id.index()];
  if (planned.over.numbers().empty()) return {};
  const Stage& home = resolved.stages[planned.home.index()];
  const Mesh& mesh = home.mesh;
  std::vector<std::string> out;
  for (const AxisId id : planned.over.at(home.place)) {
    if (mesh.axis(id).size > 1) out.push_back(mesh.axis(id).name);
  }
  return out;
}

Result<Differences> find_differences(const Described& given, const ResolvedPlan& expected,
                                     const Graph& graph, bool masters) {
  return Comparer(given, expected, graph).run(masters);
}

}  // namespace tessera
