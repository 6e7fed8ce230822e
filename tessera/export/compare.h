// Compares a plan with the plan of known settings: whether both cut the same dims, place ops on the
// same stages, and keep tensors in the same way. Axes are compared by their parts (AxisPart), not
// by their names.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/graph/graph.h"
#include "tessera/plan/plan.h"

namespace tessera {

enum class AxisPart : uint8_t { kPp, kReplicas, kDp, kCp, kEp, kTp };
std::string_view part_name(AxisPart part);  // "pp", "replicas", ...

// The part of each axis of a mesh, which says what the axis is for: replicas, tensor ranks, stages
// and so on.
struct AxisParts {
  std::map<std::string, AxisPart> part;
  std::map<std::string, int64_t> size;
  int64_t degree(AxisPart of) const;  // product of the sizes of the axes that have this part
};

struct Described {
  const ResolvedPlan& resolved;
  const AxisParts& parts;
  const Plan& plan;
};

// Returns whether the op takes so much time that its cut and stage must be the same in both plans.
// Other ops are small, and frameworks lay them out in their own way.
bool is_weighty(const Op& op);
inline bool is_matrix(const Tensor& tensor) { return tensor.dims.size() >= 2; }

// Returns the axes over which the tensor is cut when it is at rest.
std::vector<std::string> axes_at_rest(const ResolvedPlan& resolved, const Tensor& tensor);

struct Differences {
  std::vector<std::string> notes;  // differences in small things
};
// Finds where two plans differ. `expected` is the plan of some settings (settings.h), so its axes
// have the names of parts, except that its context axis may be called sp. `masters` says whether
// the wide masters of narrow parameters are compared, too. Returns notes about small differences.
// The first large difference is an error, which names the plan's entry.
Result<Differences> find_differences(const Described& given, const ResolvedPlan& expected,
                                     const Graph& graph, bool masters);

}  // namespace tessera
