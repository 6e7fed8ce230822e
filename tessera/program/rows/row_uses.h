// Finds the buffers that are caches of rows (row_caches.h), and the ops that name rows of them.
// Private to tessera/program.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/plan/plan.h"
#include "tessera/program/program.h"

namespace tessera {

struct RowTables {
  Program& program;
  const Graph& graph;
  const ResolvedPlan& plan;
  std::vector<BlockRef> order{};       // blocks in the order of their first runs
  std::vector<TensorId> tables{};      // by cache
  std::map<BufferId, int> cache_of{};  // by buffer that has only some rows

  const Tensor& tensor(TensorId id) const { return graph.tensor(id); }
  const TensorPlan& plan_of(TensorId id) const { return plan.tensors[id.index()]; }
  const RowCacheRule& rule_of(int cache) const {
    return plan_of(tables[static_cast<size_t>(cache)]).cache->rule;
  }
  bool many() const { return program.micro_batches > 1; }
  tl::unexpected<Error> error(TensorId table, const std::string& message) const;
};

// A `RowUse` is a compute whose op names rows of a cache by ids.
struct RowUse {
  BlockRef block;
  size_t at = 0;
  int cache = 0;
  std::vector<RowIds> ids;
  bool writes = false;
  When when = When::kAlways;
  OpId op;
};

// Adds the program's caches, without buffers at rest and places.
Status find_caches(RowTables& t);
Result<std::vector<RowUse>> find_uses(const RowTables& t);

}  // namespace tessera
