// Finds the settings that describe a plan (settings.h): the degrees, which follow from the dims
// that each axis cuts; the numbers of blocks of the stages; which tensors are cut at rest; and
// which activations are recomputed. The names of axes and recipes do not matter.
//
// First, each axis of the mesh gets a part by what it cuts. An axis that cuts experts is `ep`; one
// that cuts the heads or the features of products is `tp`; one that cuts the tokens of products is
// `cp`. An axis that cuts the batch of products is `replicas` if it cuts no tensor at rest, else
// `dp`. Then plan_of() makes the plan with those settings, and that plan is compared with the given
// one, op by op and tensor by tensor:
//
//   - Large things must be the same: how products, attention, scans, look-ups and losses are cut,
//     on which stages they are, how matrices are kept, and which activations are recomputed. The
//     first difference is the error, with file:line of the plan's entry that decided it.
//   - Frameworks lay out small things (norms, sums, routing, vectors) in their own way. Differences
//     in them are notes.
//
// The comparison uses the training graph in the plan's precision. It takes the time of resolving
// two plans and, if the plan recomputes anything, one more for each module that may be recomputed.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/compile/compile.h"
#include "tessera/export/settings.h"
#include "tessera/models/model.h"
#include "tessera/plan/load.h"

namespace tessera {

struct ExportQuestion {
  std::shared_ptr<const Model> model;  // made with the batch of a step
  PlanText plan;                       // as load_plan_text returns it
  DType compute = DType::kFloat32;     // the type that the run computes in (graph/precision.h)
  Compiler* compiler = nullptr;        // keeps the graphs that are trained
};

struct Recognized {
  ExportSettings settings;
  Origins origins;
  std::vector<std::string> notes;  // small things that frameworks do otherwise
};

// Finds the settings. Errors: the plan does not resolve; no settings describe it, in which case the
// error names the plan's entry.
Result<Recognized> recognize(const ExportQuestion& question);

// Returns "plan.toml:7 ({ ops = "*", dim = "seq", over = "cp" })".
std::string entry_text(const Plan& plan, const SplitEntry& entry);
std::string entry_text(const Plan& plan, const StoreEntry& entry);
std::string entry_text(const Plan& plan, const StageEntry& entry);

}  // namespace tessera
