// Lowering makes the program of each rank from the graph and the plan. The program of one rank is
// made without a visit to the other ranks, because groups and peers are functions of the rank's
// mesh coordinates. There is one rule (docs/theory/lowering.md): the box that a rank computes of an
// op is projected on the operands, which gives what the rank needs and makes; then what the rank
// holds is turned into what it needs, and what it makes is brought to where the tensor rests. No
// parallelism strategy has code of its own here.
#pragma once

#include <memory>
#include <vector>

#include "tessera/plan/resolve/path_cache.h"
#include "tessera/program/program.h"

namespace tessera {

struct LowerOptions {
  // Tensors to keep to the end of the step (gradients for verify). The loss is always kept.
  std::vector<TensorId> fetch;
  // True: stages that are equal but for names are lowered once, if only the loss is fetched. The
  // programs of copied stages then have the names of the original stage, and predicted times and
  // sizes are the same to the last bit. For plans that are only priced.
  bool equal_stages_once = false;
  // Conversion paths that are shared with other lowerings; null: this lowering finds its own.
  std::shared_ptr<PathCache> paths = {};
};

// A `RankClass` is a set of ranks whose programs are equal except for origins of boxes, groups and
// peers.
struct RankClass {
  std::vector<StageId> stages;
  int representative = 0;  // a rank of the class
  int64_t ranks = 0;       // the number of ranks in the class
};

struct PlaceText;

class Lowering {
 public:
  static Result<Lowering> create(std::shared_ptr<const Graph> graph, ResolvedPlan plan,
                                 LowerOptions options = {});
  ~Lowering();
  Lowering(Lowering&&) noexcept;
  Lowering& operator=(Lowering&&) noexcept;

  // Returns the program of the rank. `offsets`: whether to place buffers in their arenas; without
  // offsets the arenas have no sizes either.
  Result<Program> lower(int rank, bool offsets = true) const;
  // Returns the rank classes. Unless `of_rank` is null, sets (*of_rank)[rank] to the index of the
  // rank's class; -1: the rank is in no mesh.
  std::vector<RankClass> roles(std::vector<int32_t>* of_rank = nullptr) const;
  const std::vector<PlaceText>& texts() const;  // by place (place_text.h)
  const Graph& graph() const;
  // Returns the graph with the ops of all stages. graph() lacks the ops of copied stages if equal
  // stages were lowered once.
  const Graph& whole_graph() const;
  const ResolvedPlan& plan() const;

 private:
  Lowering();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
