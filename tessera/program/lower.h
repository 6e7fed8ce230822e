// Lowering: (graph, plan) -> the program of each rank, without a visit to the other ranks: groups
// and peers are functions of the rank's mesh coordinates. There is one rule
// (docs/theory/lowering.md): the piece's box is projected on its operands, which gives what the
// piece needs and makes; then what is held is turned into what is needed, and what is made is
// brought home. No strategy is named here.
#pragma once

#include <memory>
#include <vector>

#include "tessera/plan/path_cache.h"
#include "tessera/program/program.h"

namespace tessera {

struct LowerOptions {
  std::vector<TensorId>
      fetch;  // tensors to keep to the step's end (gradients for verify); the loss always is
  // For prices: stages that are equal but for names are lowered once, if only the loss is fetched.
  // Programs of copied stages then have the names of the original stage; times and sizes are the
  // same to the last bit.
  bool equal_stages_once = false;
  std::shared_ptr<PathCache> paths = {};  // shared with other lowerings; null: paths of its own
};

// A `RankClass` holds ranks that share a program text up to origins, groups and peers.
struct RankClass {
  std::vector<StageId> stages;
  int representative = 0;  // a rank
  int64_t ranks = 0;
};

struct PlaceText;

class Lowering {
 public:
  static Result<Lowering> create(std::shared_ptr<const Graph> graph, ResolvedPlan plan,
                                 LowerOptions options = {});
  ~Lowering();
  Lowering(Lowering&&) noexcept;
  Lowering& operator=(Lowering&&) noexcept;

  // `offsets`: whether to place buffers in their arenas; without offsets the arenas have no sizes
  // either.
  Result<Program> lower(int rank, bool offsets = true) const;
  // Returns the rank classes. Sets (*of_rank)[rank] to the index of the rank's class; -1: in no
  // mesh.
  std::vector<RankClass> roles(std::vector<int32_t>* of_rank = nullptr) const;
  const std::vector<PlaceText>& texts() const;  // by place (place_text.h)
  const Graph& graph() const;
  // Returns the graph with all stages; graph() lacks some if equal stages were lowered once.
  const Graph& whole_graph() const;
  const ResolvedPlan& plan() const;

 private:
  Lowering();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
