// Decides which row leaves a cache when another needs its slot. A policy is a row of a table: what
// the cache remembers about a row (its key), and whether it looks at coming batches. A cache evicts
// the row with the smallest key that no open batch uses; among equal keys, the larger row number.
//
//   name            key of a cached row                              when it comes back
//   dataset         its count in the data set, given; never changes  the same
//   lfu             the given count, plus its look-ups since         goes on from where it was
//   lfu-forgetting  the same                                         starts at 0
//   lru             number of the batch that used it last
//   lookahead       the count in the data set, or as lfu if none is given; but rows that announced
//                   batches use are kept before all others, and of these the one that is used last
//                   is evicted first (Belady's rule)
//   belady          as lookahead; replay() announces the whole trace: no policy misses less while
//                   every batch fits into the cache
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
  bool given_counts = false;  // keys start from counts of the data set
  bool counts_uses = false;   // a look-up adds 1 to the key
  bool given_is_all = false;  // with given counts, look-ups add nothing
  bool stamps = false;        // the key is the batch that used the row last
  bool remembers = false;     // a row that was evicted keeps its key
  bool window = false;        // announced batches matter
  bool whole_future = false;  // replay() announces everything
  friend bool operator==(const CachePolicy& a, const CachePolicy& b) { return a.name == b.name; }
};

const std::vector<CachePolicy>& cache_policies();
std::vector<std::string> cache_policy_names();
// Returns an error "expected a cache policy: dataset, ..., found 'x'" if no policy has the name.
Result<CachePolicy> cache_policy(std::string_view name);

}  // namespace tessera::sparse
