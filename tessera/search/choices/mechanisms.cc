#include "tessera/search/choices/mechanisms.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/text.h"

namespace tessera {

const std::vector<MechanismName>& mechanism_names() {
  static const std::vector<MechanismName> names = {
      {Mechanism::kScopes, "scopes", "parts of a block cut another dim of the list"},
      {Mechanism::kClasses, "classes", "a class of ops cuts a dim that others do not cut"},
      {Mechanism::kRings, "rings", "keys travel around an axis that cuts the queries"},
      {Mechanism::kPairs, "pairs", "two axes inside a stage, each with its own list of dims"},
      {Mechanism::kEditedLists, "edited_lists", "lists are edited on the fastest shapes"},
      {Mechanism::kHalos, "halos", "interiors before halos, and wider halos for several layers"},
      {Mechanism::kTransfers, "transfers", "other buckets, and parameters gathered earlier"},
      {Mechanism::kBorders, "borders", "edits that move a border between stages"},
      {Mechanism::kChunks, "chunks", "edits of the number of chunks"},
      {Mechanism::kUnitRecompute, "unit_recompute", "edits of what single units recompute"},
      {Mechanism::kPartition, "partition",
       "an exact partition of units into stages, with recomputation by unit"},
      {Mechanism::kPlayedSchedules, "played_schedules",
       "the schedule is played for candidates in front"},
      {Mechanism::kCorrections, "corrections", "programs correct the estimates of like choices"},
      {Mechanism::kOffload, "offload", "tensors rest on the host"},
      {Mechanism::kExpansion, "expansion", "fused ops are taken apart"},
      {Mechanism::kRecipes, "recipes", "programs that are left go to a race of all recipes"},
      {Mechanism::kTables, "tables", "embedding tables are spread by their own planner"},
      {Mechanism::kBaseline, "baseline", "the lists of dims of megatron_grid are in every space"},
  };
  return names;
}

Result<Mechanisms> parse_mechanisms(const std::string& text) {
  Mechanisms out;
  if (text.empty()) return out;
  std::vector<std::string> known;
  for (const MechanismName& one : mechanism_names()) known.push_back(one.name);
  for (const std::string& word : split_text(text, ',')) {
    const auto found = std::find(known.begin(), known.end(), word);
    if (found == known.end()) {
      return invalid_input(
          fmt::format("TESSERA_SEARCH_WITHOUT: unknown mechanism '{}', did you mean '{}'? ({})",
                      word, nearest(word, known), join(known, ", ")));
    }
    out.insert(mechanism_names()[static_cast<size_t>(found - known.begin())].mechanism);
  }
  return out;
}

}  // namespace tessera
