// Policies decide which row is evicted from a cache when another row needs its slot. The cache
// remembers a number for each row, its key. Among the rows that no open batch uses, the cache
// evicts the one with the smallest key; among equal keys, the one with the larger row number. A
// policy is an entry of a table that says how keys are set and whether announced batches count:
//
//   name            key of a row in the cache                        when an evicted row comes back
//   dataset         its count in the data set, given; never changes  its count in the data set
//   lfu             the given count, plus its look-ups since         goes on from its last value
//   lfu-forgetting  the given count, plus its look-ups since         starts at 0
//   lru             number of the last batch that used it
//   lookahead       the count in the data set, or as lfu if no counts are given. But rows that
//                   announced batches use are evicted after all others; among them, the row whose
//                   next use is last is evicted first (Belady's rule)
//   belady          as lookahead, with a whole trace announced by replay(). As long as every batch
//                   fits into the cache, no policy has fewer misses.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/result.h"

namespace tessera::sparse {

struct CachePolicy {
  std::string_view name;
  std::string_view summary;   // for help texts
  bool given_counts = false;  // keys start from the counts of the data set
  bool counts_uses = false;   // a look-up adds 1 to the key
  bool given_is_all = false;  // if counts are given, look-ups do not add to the key
  bool stamps = false;        // the key is the number of the last batch that used the row
  bool remembers = false;     // a row keeps its key when it is evicted
  bool window = false;        // rows of announced batches are kept
  bool whole_future = false;  // replay() announces the whole trace
  friend bool operator==(const CachePolicy& a, const CachePolicy& b) { return a.name == b.name; }
};

const std::vector<CachePolicy>& cache_policies();
std::vector<std::string> cache_policy_names();
// Returns an error "expected a cache policy: dataset, ..., found 'x'" if no policy has the name.
Result<CachePolicy> cache_policy(std::string_view name);

}  // namespace tessera::sparse
