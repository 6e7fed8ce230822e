// The levels of Choice::offload: which tensors rest in the host's memory.
//
//   optimizer   the optimizer's state, which the host then updates
//   states      gradients and parameters too; parameters come to the device once a step
//   all         parameters for each use, and activations that the backward pass reads
#pragma once

#include <string>
#include <vector>

#include "tessera/plan/recipes/writer.h"

namespace tessera {

struct OffloadLevel {
  std::string name, what;       // "optimizer", "optimizer state"
  double states = 0;            // bytes that leave the device, as a multiple of the state's
  std::string keep_parameters;  // how long the device keeps a copy; empty: they rest there
  bool activations = false;     // whether activations leave the device
};
const std::vector<OffloadLevel>& offload_levels();
// Returns the level of this name, or null.
const OffloadLevel* find_offload_level(const std::string& name);
// Returns the values of `--fix offload=`: "none" and the names above.
const std::vector<std::string>& offload_names();
// Returns the name for people of the tensors that rest on the host: "optimizer state" for
// "optimizer"; "" for "none".
std::string offload_text(const std::string& name);
// Writes where the tensors of a level rest; nothing for the name "".
void write_offload(recipes::PlanText& text, const std::string& name);

}  // namespace tessera
