#include "tessera/runtime/cached_rows/cache_totals.h"

#include <algorithm>
#include <array>

#include "tessera/runtime/step/ranks.h"

namespace tessera {
namespace {

// Returns the counters that are summed over ranks and periods; slots and rows are summed over ranks
// only.
std::array<int64_t*, 5> sums(TableCacheSummary& one) {
  return {&one.lookups, &one.lookup_misses, &one.rows_in, &one.rows_out, &one.overflow_rows};
}

}  // namespace

void CacheTotals::add(const RankExecutor& executor, const Compiled& compiled) {
  for (const RowCacheReport& report : executor.row_caches()) {
    TableCacheSummary& one = own_[compiled.graph().tensor(report.table).name];
    one.rows = report.rows;
    one.slots = report.slots;
    one.row_bytes = report.row_bytes;
    one.lookups += report.lookups;
    one.lookup_misses += report.lookup_misses;
    one.rows_in += report.rows_in;
    one.rows_out += report.rows_out;
    one.overflow_rows += report.overflow_rows;
  }
}

std::vector<TableCacheSummary> CacheTotals::gather(comm::Communicator& world,
                                                   const Periods& periods) const {
  std::vector<TableCacheSummary> all;
  for (const Period& period : periods) {
    const ResolvedPlan& plan = period.compiled.plan();
    for (const Tensor& tensor : period.compiled.graph().tensors()) {
      const auto& cache = plan.tensors[tensor.id.index()].cache;
      if (!cache || tensor.role != Role::kParameter) continue;
      const auto known = std::find_if(all.begin(), all.end(), [&](const TableCacheSummary& one) {
        return one.table == tensor.name;
      });
      TableCacheSummary& one = known == all.end() ? all.emplace_back() : *known;
      one.table = tensor.name;
      one.policy = cache->rule.policy;
    }
  }
  if (all.empty()) return all;
  std::vector<int64_t> mine;
  for (const TableCacheSummary& one : all) {
    const auto found = own_.find(one.table);
    TableCacheSummary here = found == own_.end() ? TableCacheSummary() : found->second;
    mine.insert(mine.end(), {here.rows, here.slots, here.row_bytes});
    for (const int64_t* value : sums(here)) mine.push_back(*value);
  }
  for (const std::vector<int64_t>& rank : comm::gather_lists(world, mine)) {
    size_t at = 0;
    const auto next = [&] { return rank[at++]; };
    for (TableCacheSummary& one : all) {
      one.rows += next();
      one.slots += next();
      one.row_bytes = std::max(one.row_bytes, next());
      for (int64_t* value : sums(one)) *value += next();
    }
  }
  return all;
}

}  // namespace tessera
