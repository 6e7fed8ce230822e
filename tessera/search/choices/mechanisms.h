// Names the mechanisms of a search that can be switched off to measure their worth. The measure is
// the fastest step with and without the mechanism, and the processor seconds that the mechanism
// costs. The switches serve this measurement only, which benchmarks/run_mechanisms.py makes; the
// script writes its table to the page that its option --out names.
//
//   TESSERA_SEARCH_WITHOUT=scopes,recipes tessera plan MODEL --cluster C --batch B
//   if (question.uses(Mechanism::kScopes)) ...
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tessera/base/result.h"

namespace tessera {

enum class Mechanism {
  kScopes,
  kClasses,
  kRings,
  kPairs,
  kEditedLists,
  kHalos,
  kTransfers,
  kBorders,
  kChunks,
  kUnitRecompute,
  kPartition,
  kPlayedSchedules,
  kCorrections,
  kOffload,
  kExpansion,
  kRecipes,
  kTables,
  kBaseline,
};

using Mechanisms = std::set<Mechanism>;

struct MechanismName {
  Mechanism mechanism;
  std::string name;  // "unit_recompute"
  std::string does;  // what the mechanism does, in one line
};
const std::vector<MechanismName>& mechanism_names();

// Reads names that are separated by commas; the text "" names no mechanism. Errors: an unknown
// name; the message suggests the nearest known name.
Result<Mechanisms> parse_mechanisms(const std::string& text);

}  // namespace tessera
