// Says which pieces of a training run's state the ranks of a plan hold.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tessera/base/box.h"
#include "tessera/base/result.h"

namespace tessera {

// The text of a plan, and what each rank holds of each tensor, by name.
struct PlanPieces {
  std::string text;
  int64_t ranks = 1;
  std::map<std::string, std::vector<Box>> regions;  // by rank; absent: the first rank has all
};

// Returns what the ranks of a plan of the model hold. "": one rank without a plan, which has all.
Result<PlanPieces> pieces_of(const std::string& plan, const std::string& model);

}  // namespace tessera
