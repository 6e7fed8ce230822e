// Finds the settings of a plan (settings.h): the degrees, from the dims that each axis cuts; how
// the blocks lie on stages; which tensors rest in shards; and which activations are recomputed.
// Names of axes or recipes play no role.
//
// First each axis of the mesh gets its part: an axis that cuts experts is `ep`; one that cuts the
// heads or the features of products `tp`; one that cuts the tokens of products `cp`; one that cuts
// their batch `dp`, or `replicas` if all that rests in shards is whole over it. Then the plan with
// those settings (plan_of) is compared with the given one, op by op and tensor by tensor:
//
//   - products, attention, scans, look-ups and losses must be cut alike and lie on the same stages,
//     matrices must rest alike, and the same activations must be recomputed. The first difference
//     is the error, with file:line of the entry that decided it;
//   - small things (norms, sums, routing, vectors) are laid out by the frameworks in their own way:
//     differences are notes.
//
// The comparison is made on the training graph, in the plan's precision. It costs two resolutions
// of a plan, and, if the plan recomputes anything, one more for each module that may be recomputed.
#pragma once

#include <string>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/export/settings.h"
#include "tessera/models/model.h"
#include "tessera/plan/load.h"

namespace tessera {

struct ExportQuestion {
  const Model* model = nullptr;     // with the batch of a step
  PlanText plan;                    // as load_plan_text returns it
  DType compute = DType::kFloat32;  // the type the run computes in (graph/precision.h)
};

struct Recognized {
  ExportSettings settings;
  Origins origins;
  std::vector<std::string> notes;  // small things that the frameworks do otherwise
};

// Returns errors where the plan does not resolve, or no settings describe it; the latter names the
// plan's entry.
Result<Recognized> recognize(const ExportQuestion& question);

// Returns "plan.toml:7 ({ ops = "*", dim = "seq", over = "cp" })".
std::string entry_text(const Plan& plan, const SplitEntry& entry);
std::string entry_text(const Plan& plan, const StoreEntry& entry);
std::string entry_text(const Plan& plan, const StageEntry& entry);

}  // namespace tessera
