// Counts what happened in a run's caches of rows, over its periods and all ranks. Private to
// tessera/runtime.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tessera/comm/communicator.h"
#include "tessera/runtime/session.h"
#include "tessera/runtime/step/interpreter.h"
#include "tessera/runtime/training/periods.h"

namespace tessera {

class CacheTotals {
 public:
  // Adds the counts of this rank's executor of a period. Call this once for each executor, when the
  // executor has run its last step.
  void add(const RankExecutor& executor, const Compiled& compiled);
  // Returns the totals over all ranks, for each table that has a cache in any period. All ranks
  // call this function together.
  std::vector<TableCacheSummary> gather(comm::Communicator& world, const Periods& periods) const;

 private:
  std::map<std::string, TableCacheSummary> own_;  // by table
};

}  // namespace tessera
