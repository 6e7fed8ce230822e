// From a model's text and a recipe to the programs of all ranks, and what they send.
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
  // Elements (all floating tensors are float64) that all ranks together send in a step, of the
  // tensors to keep.
  int64_t sent(Keep keep = any) const;
  int64_t sent_in(BlockKind block, Keep keep = any) const;
  int64_t sent_by(const std::string& kind, Keep keep = any) const;
  // Collectives of one rank in a step.
  int64_t calls(int rank, CollectiveKind kind, Keep keep) const;
  int64_t parameters(Keep keep = any) const;  // elements
  // Elements that all ranks together send in collectives along exactly these axes.
  int64_t sent_along(const std::vector<std::string>& axes, Keep keep = any) const;
  // Elements that one rank holds: at rest, and from the forward to the backward pass.
  int64_t at_rest(size_t rank, Keep keep = any) const;
  int64_t stored(size_t rank, Keep keep = any) const;
  int64_t of_the_step(size_t rank, Keep keep = any) const;  // across its micro-batches
};
// `plan`: a recipe call, or a plan's text that begins with its mesh; `more`: what the recipe's text
// does not say. The model in float64.
MeasuredPlan measure(const std::string& model, const std::string& plan, int64_t batch,
                     const std::string& more = "");
// The text of the first place under the plan, which must parse back to itself.
std::string text_of_place(const std::string& model, const std::string& plan, int64_t batch);

}  // namespace tessera
