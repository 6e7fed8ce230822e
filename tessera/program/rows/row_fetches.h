// Decides when the rows of a cache (row_caches.h) come and go. Private to tessera/program.
#pragma once

#include <cstddef>
#include <set>
#include <vector>

#include "tessera/program/rows/row_uses.h"

namespace tessera {

struct RowFetch {
  int cache = 0;
  std::vector<RowIds> ids;
  When when = When::kAlways;
  OpId cause;
  BlockRef block;
  size_t position = 0;   // the fetch goes before the instruction at this index of `block`
  size_t first_use = 0;  // index in `block`
  BlockRef last_block;
  size_t last_use = 0;
  OpId last_op;
  bool changed = false;
  bool from_data = true;  // whether all ids are inputs of the graph
  bool ahead = false;     // whether the rows of the next step's batch are fetched too
};

struct RowFetches {
  std::vector<RowFetch> all;
  ByBlock<std::set<size_t>> hoisted;  // loads that go to the beginning of their block, by position
};

// Returns the fetches that bring the rows of all uses, or an error if a cache would have more
// batches open at a time than it can.
Result<RowFetches> cover(const RowTables& t, const std::vector<RowUse>& uses);

}  // namespace tessera
