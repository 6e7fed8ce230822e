// A part of a plan: some keys and entries of a plan text (plan.h) that plans are to contain. Other
// texts say what the part leaves open: a planner finds the rest around it.
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
  Plan plan;                      // the text's keys and entries; its mesh may lack their axes
  std::vector<std::string> keys;  // keys that the text has
  int mesh_line = 0;              // 0: it has no mesh
  bool has(std::string_view key) const;
  // Returns the axes that entries name and the part's own mesh lacks, with the line of the first
  // entry that names each.
  std::vector<std::pair<std::string, int>> missing_axes() const;
};

// Reads the text of a part. `axes`: axes that entries may name besides those of the part's own
// mesh. Errors: those of a plan's text; an axis that is in neither.
Result<PlanPart> parse_part(std::string_view text, std::string_view file,
                            const std::vector<std::string>& axes);

// Returns the plan with the part in it. Entries of the plan that the part's entries would override
// word by word are left out. The part's entries keep the lines of its own file. Errors (with the
// part's file and line): an entry with an axis that the plan's mesh lacks.
Result<Plan> add_part(Plan plan, const PlanPart& part);

// Returns the part up to each of its entries, and the line of the last entry: {the keys without
// entries}, {these and the first entry}, and so on. Shows which entry does not fit a plan.
std::vector<std::pair<int, PlanPart>> growing_parts(const PlanPart& part);

}  // namespace tessera
