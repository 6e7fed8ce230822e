// Mechanisms of a search that can be left out, so that one can weigh what each of them earns: the
// fastest step with it and without it, and the processor seconds that it costs. Nothing else asks
// for them; docs/results/mechanisms.md has the table, which benchmarks/run_mechanisms.py writes.
//
//   TESSERA_SEARCH_WITHOUT=own_dims,slices tessera plan MODEL --cluster C --batch B
//   if (question.uses(Mechanism::kOwnDims)) ...
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tessera/base/result.h"

namespace tessera {

enum class Mechanism {
  kOwnDims,
  kUnequalMeshes,
  kSlices,
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
};

using Mechanisms = std::set<Mechanism>;

struct MechanismName {
  Mechanism mechanism;
  std::string name;  // "own_dims"
  std::string does;  // one line
};
const std::vector<MechanismName>& mechanism_names();

// Reads names that are separated by commas; "" names none. Errors: an unknown name, with the
// nearest one.
Result<Mechanisms> parse_mechanisms(const std::string& text);

}  // namespace tessera
