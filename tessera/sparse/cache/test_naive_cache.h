// For tests: a second implementation of the cache of cache_index.h, which is meant to be obviously
// right. It uses sets and full scans, serves one batch at a time, and looks up later batches in the
// trace instead of being told.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "tessera/sparse/cache/cache_index.h"
#include "tessera/sparse/cache/replay.h"

namespace tessera::sparse {

class NaiveCache {
 public:
  NaiveCache(const LookupTrace& trace, std::string policy, int64_t slots,
             std::vector<int64_t> given, int64_t window)
      : trace_(trace), policy_(std::move(policy)), slots_(slots), window_(window) {
    for (size_t row = 0; row < given.size(); ++row) given_[static_cast<int64_t>(row)] = given[row];
    if (policy_ == "dataset" || policy_ == "lfu" || knows_future()) {
      key_ = given_;
    }
  }

  CacheCounts run(const std::vector<bool>& changed) {
    for (int64_t i = 0; i < trace_.batches(); ++i) step(i, changed[static_cast<size_t>(i)]);
    return counts_;
  }

 private:
  bool knows_future() const { return policy_ == "lookahead" || policy_ == "belady"; }
  // Says when a row is evicted: the row with the smallest value goes first.
  using Value = std::tuple<int64_t, int64_t, int64_t>;
  Value value(int64_t row, int64_t batch) {
    if (knows_future()) {
      const int64_t end =
          policy_ == "belady" ? trace_.batches() : std::min(trace_.batches(), batch + 1 + window_);
      for (int64_t next = batch + 1; next < end; ++next) {
        const auto ids = trace_.batch(next);
        if (std::find(ids.begin(), ids.end(), row) != ids.end()) return {1, -next, -row};
      }
    }
    return {0, key_[row], -row};
  }

  void step(int64_t batch, bool changed) {
    std::map<int64_t, int64_t> uses;
    for (const int64_t id : trace_.batch(batch)) {
      if (id >= 0) ++uses[id];
    }
    std::vector<int64_t> missing;
    ++counts_.batches;
    for (const auto& [row, count] : uses) {
      counts_.lookups += count;
      ++counts_.rows;
      const bool hit = cached_.count(row) != 0;
      if (!hit) {
        missing.push_back(row);
        ++counts_.row_misses;
        counts_.lookup_misses += count;
      }
      if (!hit && policy_ == "lfu-forgetting") key_[row] = 0;
      const bool counts = policy_.starts_with("lfu") || (knows_future() && given_.empty());
      if (counts) key_[row] += count;
      if (policy_ == "lru") key_[row] = batch;
    }
    std::vector<int64_t> order;  // rows that may be evicted
    for (const int64_t row : cached_) {
      if (uses.count(row) == 0) order.push_back(row);
    }
    const auto first = [&](int64_t a, int64_t b) { return value(a, batch) < value(b, batch); };
    std::sort(order.begin(), order.end(), first);
    const auto room = slots_ - static_cast<int64_t>(cached_.size());
    const auto leave = std::clamp<int64_t>(static_cast<int64_t>(missing.size()) - room, 0,
                                           static_cast<int64_t>(order.size()));
    for (int64_t i = 0; i < leave; ++i) {
      const int64_t row = order[static_cast<size_t>(i)];
      cached_.erase(row);
      counts_.rows_out += static_cast<int64_t>(dirty_.erase(row));
    }
    std::sort(missing.rbegin(), missing.rend(), first);
    for (const int64_t row : missing) {
      ++counts_.rows_in;
      if (static_cast<int64_t>(cached_.size()) < slots_) {
        cached_.insert(row);
      } else {
        ++counts_.overflow_rows;
        counts_.rows_out += changed ? 1 : 0;
      }
    }
    for (const auto& [row, count] : uses) {
      if (changed && cached_.count(row) != 0) dirty_.insert(row);
    }
  }

  const LookupTrace& trace_;
  std::string policy_;
  int64_t slots_, window_;
  std::map<int64_t, int64_t> key_, given_;
  std::set<int64_t> cached_, dirty_;
  CacheCounts counts_;
};

}  // namespace tessera::sparse
