// Lowering: (graph, plan) -> the program of each rank, without visiting the other ranks: groups and
// peers are functions of the rank's mesh coordinates. One rule (docs/theory/lowering.md): project
// the piece's box on its operands to get what it needs and makes; turn hold into need, make into
// home. No strategy is named here.
#pragma once

#include <memory>
#include <vector>

#include "tessera/plan/path_cache.h"
#include "tessera/program/program.h"

namespace tessera {

struct LowerOptions {
  std::vector<TensorId>
      fetch;  // to keep to the end of the step (gradients for verify); the loss is always fetched
  // For prices: stages that are equal but for names are lowered once, where nothing is fetched but
  // the loss. Programs of copies then have the names of the stage that they copy; times and sizes
  // are the same to the last bit.
  bool equal_stages_once = false;
  std::shared_ptr<PathCache> paths = {};  // of other lowerings; null: each finds its own
};

// Ranks that share a program text up to origins, groups and peers.
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

  // `offsets`: places of buffers in their arenas; without them the arenas have no sizes either.
  Result<Program> lower(int rank, bool offsets = true) const;
  // of_rank: by rank, the index of its role; -1: in no mesh.
  std::vector<RankClass> roles(std::vector<int32_t>* of_rank = nullptr) const;
  const std::vector<PlaceText>& texts() const;  // by place (place_text.h)
  const Graph& graph() const;
  // With all stages: what graph() lacks if equal stages were lowered once.
  const Graph& whole_graph() const;
  const ResolvedPlan& plan() const;

 private:
  Lowering();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
