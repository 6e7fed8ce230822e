// A part of a plan: some keys and entries of a plan text (plan.h), which plans are to contain. What
// it leaves open, other texts say: a planner finds the rest around it.
//
//   # part.toml
//   mesh = { tp = 4 }
//   store = [ { tensors = "optimizer.*", tier = "host" } ]
//
//   TESSERA_TRY(const PlanPart part, parse_part(text, "part.toml", {"pp", "dp", "tp"}));
//   TESSERA_TRY(const Plan whole, add_part(plan, part));   // contains the part
//
// An axis of the part's mesh has this size in every plan; a plan's other axes stay. Entries follow
// the plan's own, so they decide; every other key takes the place of the plan's.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/plan/plan.h"

namespace tessera {

struct PlanPart {
  Plan plan;                      // what the text says; its mesh may lack axes of the entries
  std::vector<std::string> keys;  // that the text has
  int mesh_line = 0;              // 0: it has no mesh
  bool has(std::string_view key) const;
  // What entries name that is not in the part's own mesh, with the line of the first to do so.
  std::vector<std::pair<std::string, int>> missing_axes() const;
};

// `axes`: what entries may name beside the axes of the part's own mesh. Errors: those of a plan's
// text, an axis that is in neither.
Result<PlanPart> parse_part(std::string_view text, std::string_view file,
                            const std::vector<std::string>& axes);

// The plan with the part in it. Own entries that the part's would override word by word are left
// out. Lines of the part's entries are those of its own file. Errors (with the part's file and
// line): an entry with an axis that the plan's mesh lacks.
Result<Plan> add_part(Plan plan, const PlanPart& part);

// The part up to each of its entries, and the line of the last: {its keys but entries}, {these and
// the first entry}, and so on. Tells which entry a plan does not go with.
std::vector<std::pair<int, PlanPart>> growing_parts(const PlanPart& part);

}  // namespace tessera
