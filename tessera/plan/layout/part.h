// A part of a plan: some keys and entries in the syntax of a plan text (plan.h), which a user
// fixes. A planner finds the other keys and entries; every plan that it makes contains the part.
//
//   # part.toml
//   mesh = { tp = 4 }
//   store = [ { tensors = "optimizer.*", tier = "host" } ]
//
//   TESSERA_TRY(const PlanPart part, parse_part(text, "part.toml", {"pp", "dp", "tp"}));
//   TESSERA_TRY(const Plan whole, add_part(plan, part));   // contains the part
//
// When a part is added to a plan, an axis in the part's mesh sets the size of that axis in the
// plan; the other axes of the plan stay. The entries of the part come after the plan's own entries,
// so they decide. Every other key of the part replaces that key of the plan.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/plan/plan.h"

namespace tessera {

struct PlanPart {
  Plan plan;                      // the part; its mesh may lack axes that its entries name
  std::vector<std::string> keys;  // names of the keys that the text has
  int mesh_line = 0;              // line of the key mesh; 0: the text has no mesh
  bool has(std::string_view key) const;
  // Returns the axes that entries name and the part's own mesh lacks, with the line of the first
  // entry that names each.
  std::vector<std::pair<std::string, int>> missing_axes() const;
};

// Reads the text of a part. `axes`: axes that entries may name in addition to those of the part's
// own mesh. Errors: those of parse_plan; an entry that names an axis which is neither in `axes` nor
// in the part's mesh.
Result<PlanPart> parse_part(std::string_view text, std::string_view file,
                            const std::vector<std::string>& axes);

// Returns the plan with the part added. An entry of the plan is left out if an entry of the part
// selects by the same pattern and decides all that the plan's entry says. The part's entries keep
// the lines of its own file. Errors (with the part's file and line): an entry with an axis that the
// plan's mesh lacks.
Result<Plan> add_part(Plan plan, const PlanPart& part);

// Returns parts that grow by one entry at a time, each with the line of its last entry. The first
// has the keys without entries, the second also the first entry, and so on. The first of them that
// a planner cannot fulfil shows which entry does not fit.
std::vector<std::pair<int, PlanPart>> growing_parts(const PlanPart& part);

}  // namespace tessera
