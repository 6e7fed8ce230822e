#include "tessera/plan/prepare.h"

#include "tessera/base/check.h"
#include "tessera/graph/transform.h"

namespace tessera {

Result<Prepared> prepare(const Graph& differentiated, const Plan& plan) {
  // Expansions first, so that clones are of expanded ops. Each round frees dims for good; a few are
  // enough.
  constexpr int kMostRounds = 8;
  Prepared prepared;
  prepared.graph = differentiated;
  for (int round = 0; round < kMostRounds; ++round) {
    TESSERA_TRY(prepared.plan, resolve(plan, prepared.graph));
    if (!prepared.plan.to_expand.empty()) {
      TESSERA_TRY(prepared.graph, expand_ops(prepared.graph, prepared.plan.to_expand));
    } else if (!prepared.plan.to_recompute.empty()) {
      TESSERA_TRY(prepared.graph, recompute_ops(prepared.graph, prepared.plan.to_recompute));
    } else {
      return prepared;
    }
  }
  TESSERA_CHECK(false, "the graph '{}' still wants transforms after {} rounds", differentiated.name,
                kMostRounds);
}

}  // namespace tessera
