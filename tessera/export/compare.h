// Compares a plan with the plan of known settings: do both cut, place and keep the same? Axes are
// compared by their parts (which ranks share what), not by name.
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

// The purpose of each axis of a mesh: replicas, tensor ranks, stages and so on.
struct AxisParts {
  std::map<std::string, AxisPart> part;
  std::map<std::string, int64_t> size;
  int64_t degree(AxisPart of) const;  // product of the sizes of the axes of this part
};

struct Described {
  const ResolvedPlan& resolved;
  const AxisParts& parts;
  const Plan& plan;
};

// Returns whether the op's cut and stage decide the time of a step. Other ops are small, and
// frameworks lay them out in their own way.
bool is_weighty(const Op& op);
inline bool is_matrix(const Tensor& tensor) { return tensor.dims.size() >= 2; }

// Returns the names of the axes over which the tensor rests in shards.
std::vector<std::string> axes_at_rest(const ResolvedPlan& resolved, const Tensor& tensor);

struct Differences {
  std::vector<std::string> notes;  // about small things
};
// Finds where two plans differ. `expected` is the plan of some settings (settings.h): its axes have
// the names of parts, but its context axis may be called sp. `masters` says whether masters of
// narrow copies are compared, too. The error names the entry of the first large difference.
Result<Differences> find_differences(const Described& given, const ResolvedPlan& expected,
                                     const Graph& graph, bool masters);

}  // namespace tessera
