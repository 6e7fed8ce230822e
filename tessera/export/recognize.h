// The settings of a plan (settings.h): which degrees its axes are, from the dims that they cut, how
// the blocks lie on stages, what rests in shards and what is made again. No name of an axis or of a
// recipe plays a role.
//
// First each axis of the mesh gets its part: one that cuts experts is `ep`; one that cuts the heads
// or the features of products `tp`; one that cuts the tokens of products `cp`; one that cuts their
// batch `dp`, or `replicas` if what rests in shards is whole over it. Then the plan with those
// settings (plan_of) is compared with the given one, op by op and tensor by tensor:
//
//   - products, attention, scans, look-ups and losses must be cut alike and lie on the same stages,
//     matrices must rest alike and the same activations be made again. The first difference is the
//     error, with file:line of the entry that decided it;
//   - what is small (norms, sums, routing, vectors) is laid out by the frameworks in their own way:
//     differences are notes.
//
// Compared on the graph that is trained, in the plan's precision. Costs two resolutions of a plan,
// and one more for each module that may be made again if something is.
#pragma once

#include <string>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/export/settings.h"
#include "tessera/models/model.h"
#include "tessera/plan/load.h"

namespace tessera {

struct ExportQuestion {
  const Model* model = nullptr;     // with the batch of the step
  PlanText plan;                    // as load_plan_text finds it
  DType compute = DType::kFloat32;  // of the run (graph/precision.h)
};

struct Recognized {
  ExportSettings settings;
  Origins origins;
  std::vector<std::string> notes;  // what the frameworks do otherwise in small things
};

// Errors: a plan that does not resolve; one that no settings describe, with its entry.
Result<Recognized> recognize(const ExportQuestion& question);

// "plan.toml:7 ({ ops = "*", dim = "seq", over = "cp" })".
std::string entry_text(const Plan& plan, const SplitEntry& entry);
std::string entry_text(const Plan& plan, const StoreEntry& entry);
std::string entry_text(const Plan& plan, const StageEntry& entry);

}  // namespace tessera
