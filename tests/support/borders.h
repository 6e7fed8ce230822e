// Plans of each sort over small graphs: what golden texts show, and what mutations are made of.
#pragma once

#include <string>
#include <vector>

#include "support/compiled.h"

namespace tessera {

struct Border {
  std::string name;
  Graph (*graph)() = nullptr;  // forward
  int rank = 0;                // whose program is kept, with its place's text
  std::string plan;            // TOML
};
const std::vector<Border>& borders();
// Trained by plain gradient descent, with a state where the plan stores one.
Result<CompiledPlan> compile(const Border& border);

}  // namespace tessera
