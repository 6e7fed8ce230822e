// Compiles a model's text under a recipe into the programs of all ranks, and counts what they send.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "tessera/cluster/mesh.h"
#include "tessera/program/program.h"

namespace tessera {

struct MeasuredPlan {
  Graph graph;
  std::vector<Program> programs;  // of all ranks
  int64_t micro_batches = 1;
  Mesh mesh;  // of the first stage

  using Keep = bool (*)(const Tensor&);
  static bool any(const Tensor&) { return true; }
  // Returns the elements (all floating tensors are float64) of the tensors to keep that all ranks
  // together send in a step.
  int64_t sent(Keep keep = any) const;
  int64_t sent_in(BlockKind block, Keep keep = any) const;
  int64_t sent_by(const std::string& kind, Keep keep = any) const;
  // Returns the number of collectives of one rank in a step.
  int64_t calls(int rank, CollectiveKind kind, Keep keep) const;
  int64_t parameters(Keep keep = any) const;  // elements
  // Returns the elements that all ranks together send in collectives along exactly these axes.
  int64_t sent_along(const std::vector<std::string>& axes, Keep keep = any) const;
  // Returns the elements that one rank holds: at rest, and from the forward to the backward pass.
  int64_t at_rest(size_t rank, Keep keep = any) const;
  int64_t stored(size_t rank, Keep keep = any) const;
  int64_t of_the_step(size_t rank, Keep keep = any) const;  // across its micro-batches
};
// Measures a model in float64. `plan`: a recipe call, or a plan's text that begins with its mesh;
// `more`: text to add to the recipe's.
MeasuredPlan measure(const std::string& model, const std::string& plan, int64_t batch,
                     const std::string& more = "");
// Returns the text of the first place under the plan, which must parse back to itself.
std::string text_of_place(const std::string& model, const std::string& plan, int64_t batch);

}  // namespace tessera
