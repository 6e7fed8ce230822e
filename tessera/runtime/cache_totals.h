// What happened in the caches of rows of a run, over its periods and all ranks. Private to
// tessera/runtime.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tessera/comm/communicator.h"
#include "tessera/runtime/interpreter.h"
#include "tessera/runtime/periods.h"
#include "tessera/runtime/session.h"

namespace tessera {

class CacheTotals {
 public:
  // What this rank's executor of a period has counted, once, at its end.
  void add(const RankExecutor& executor, const Compiled& compiled);
  // Over all ranks, for each table that has a cache in a period; called by all ranks.
  std::vector<TableCacheSummary> gather(comm::Communicator& world,
                                        const std::vector<Period>& periods) const;

 private:
  std::map<std::string, TableCacheSummary> own_;  // by table
};

}  // namespace tessera
