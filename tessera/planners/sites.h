// The planner `auto` on a cluster of sites: parts that are joined by lines (subcluster.h), as
// campuses or cloud regions are. A line may be a thousand times slower than the
// links inside a site, so that plans of other planners are tried too, and with
// PlanQuestion::allows_lossy also outer steps (plan/outer_steps.h), in which each site trains by
// itself and the sites compare their parameters once in many steps.
//
//   const PlanAnswer answer = find_over_sites(question, find_on_one_site).value();
#pragma once

#include <functional>

#include "tessera/search/question/answer.h"
#include "tessera/search/question/question.h"

namespace tessera {

// Inner steps between two outer steps, unless the question fixes `outer_every`. It is the value of
// DiLoCo (arXiv 2311.08105) that docs/results/emulated-networks.md measures.
inline constexpr int64_t kOuterEvery = 50;

using FindPlan = std::function<Result<PlanAnswer>(const PlanQuestion&)>;
// Returns the best of what `find` finds and, if the cluster has several sites, of the plans for
// them. `find` also finds the plan that each site follows between outer steps. Plans that cannot be
// made (more devices than a planner takes, a batch that the sites do not divide) are left out, and
// PlanAnswer::simulated says why. If the question fixes `outer_every`, only outer steps are an
// answer. Errors: those of `find`; `outer_every` is fixed for a question that allows nothing lossy
// or for a cluster of one site.
Result<PlanAnswer> find_over_sites(const PlanQuestion& question, const FindPlan& find);

}  // namespace tessera
