// Plans of each sort over small graphs, for golden texts and for mutations.
#pragma once

#include <string>
#include <vector>

#include "support/compiled.h"

namespace tessera {

struct Border {
  std::string name;
  Graph (*graph)() = nullptr;  // forward
  int rank = 0;                // the rank whose program is kept, with its place's text
  std::string plan;            // TOML
};
const std::vector<Border>& borders();
// Compiles for training by plain gradient descent, with a state where the plan stores one.
Result<CompiledPlan> compile(const Border& border);

}  // namespace tessera
