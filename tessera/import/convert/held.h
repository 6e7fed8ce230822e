// What the ranks of a plan hold of a training run's state.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tessera/base/box.h"
#include "tessera/base/result.h"

namespace tessera {

// The text of a plan, and what each rank holds of each tensor, by name.
struct Held {
  std::string text;
  int64_t ranks = 1;
  std::map<std::string, std::vector<Box>> regions;  // by rank; absent: the first rank has all
};

// Returns what the ranks of a plan of the model hold. "": one rank without a plan, which has all.
Result<Held> held_by(const std::string& plan, const std::string& model);

}  // namespace tessera
