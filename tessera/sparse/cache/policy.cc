#include "tessera/sparse/cache/policy.h"

#include <fmt/format.h>

#include "tessera/base/one_line.h"
#include "tessera/base/text.h"

namespace tessera::sparse {

const std::vector<CachePolicy>& cache_policies() {
  static const std::vector<CachePolicy> kPolicies = {
      {.name = "dataset",
       .summary = "keeps the rows that the data set uses most",
       .given_counts = true,
       .remembers = true},
      {.name = "lfu",
       .summary = "keeps the rows used most so far",
       .given_counts = true,
       .counts_uses = true,
       .remembers = true},
      {.name = "lfu-forgetting",
       .summary = "keeps the rows used most since they came in",
       .given_counts = true,
       .counts_uses = true},
      {.name = "lru", .summary = "keeps the rows used last", .stamps = true},
      {.name = "lookahead",
       .summary = "keeps what the next batches use, then the rows used most",
       .given_counts = true,
       .counts_uses = true,
       .given_is_all = true,
       .remembers = true,
       .window = true},
      {.name = "belady",
       .summary = "knows all batches: the bound of the others",
       .given_counts = true,
       .counts_uses = true,
       .given_is_all = true,
       .remembers = true,
       .window = true,
       .whole_future = true},
  };
  return kPolicies;
}

std::vector<std::string> cache_policy_names() {
  std::vector<std::string> names;
  for (const CachePolicy& policy : cache_policies()) names.emplace_back(policy.name);
  return names;
}

Result<CachePolicy> cache_policy(std::string_view name) {
  for (const CachePolicy& policy : cache_policies()) {
    if (policy.name == name) return policy;
  }
  return invalid_input(fmt::format("expected a cache policy: {}, found '{}'",
                                   join(cache_policy_names(), ", "), short_line(name, 60)));
}

}  // namespace tessera::sparse
