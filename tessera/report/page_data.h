// The parts of the page's data, for the sources of this folder. A page has a bound on its size, so
// every list that grows with the model or with the step has a bound too: its entry in `Detail`.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tessera/report/report.h"

namespace tessera::page {

using OrderedJson = nlohmann::ordered_json;

// The most entries of each list for one plan.
struct Detail {
  int64_t instructions = 10'000;  // single instructions of the timeline
  int64_t merged = 4'000;         // merged runs of the timeline
  int64_t samples = 600;          // of the memory of a rank
  int64_t live = 16;              // kinds of buffers that a rank's memory names
  int64_t path = 40;              // parts of the critical path
  int64_t ops = 1'500;            // rows of ops
  int64_t shares = 2'000;         // pieces of embedding tables
  // Returns these bounds, multiplied by `factor`, for one of `plans` plans.
  static Detail of(int64_t plans, double factor);
};

int64_t nanoseconds(double seconds);

// Collects texts and gives each a number.
class Labels {
 public:
  int32_t operator()(const std::string& text);
  const std::vector<std::string>& list() const { return list_; }

 private:
  std::map<std::string, int32_t> index_;
  std::vector<std::string> list_;
};

// A path in which one number is replaced: "blocks.17.attn.q" has prefix "blocks.", number 17 and
// suffix ".attn.q". Only a part that is all digits counts as a number, and only the first.
struct NumberedPath {
  std::string prefix, suffix;
  int64_t number = -1;  // -1: the path has no number, `prefix` is all of it
  explicit NumberedPath(const std::string& path);
  std::string pattern() const;  // "blocks.*.attn.q"
};

// Adds a part to the data of a run; so do the two functions below.
void add_timeline(const Simulation& simulation, const Detail& detail, OrderedJson& run);
void add_path(const Simulation& simulation, const Detail& detail, OrderedJson& run);
void add_ops(const Lowering& lowering, const Detail& detail, OrderedJson& run);
// Returns the memory of a rank over the step.
OrderedJson memory_json(const MemoryUse& memory, const Detail& detail);
// Returns the record of a run of `tessera train`.
OrderedJson record_json(const RunRecord& record);
// Returns what the ranks of a run did.
OrderedJson watch_json(const WatchReport& watch, const std::string& predicted_for);

}  // namespace tessera::page
