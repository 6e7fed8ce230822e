// Folds a deep model into a shallow one. A planner needs many prices of a model whose layers are
// equal. It computes each price on a model with two layers of every run of equal layers, and counts
// a layer's price as often as the model has the layer.
//
//   TESSERA_TRY(const Fold fold, fold_layers(model->graph));
//   fold.graph;                      // for a gpt with 96 layers: its forward graph with two layers
//   fold.units.size();               // 96 layers and the ops around them, in the model's order
//   fold.units[50].stand_in;         // the unit of `fold.graph` that costs the same
//
// Planners deal with units: a layer of a run, or one op that stands outside all runs. A pipeline
// stage is a row of neighbouring units.
//
// Layers that are built alike but have unequal sizes stay in the graph, each as a unit of its own.
// If there are many such layers, a few of them are sampled (sample_layers) and priced, and the
// prices of the others are interpolated by size.
//
// Invariants: units are in graph order and cover every forward op once. The first layer of a run
// stands for itself. The second layer stands for itself and all later layers. A graph in which
// nothing repeats more than twice is its own fold.
#pragma once

#include <optional>
#include <vector>

#include "tessera/graph/graph.h"

namespace tessera {

struct FoldUnit {
  std::vector<OpId> ops;  // of the model's forward graph, in order
  int stand_in = 0;       // the unit of the folded graph that costs the same
  // The number of the run of equal layers that the unit belongs to; -1: none.
  int run = -1;
};

struct Fold {
  Graph graph;               // forward
  std::vector<int> unit_of;  // by op of `graph`: the unit of `graph` that has the op
  int folded_units = 0;      // number of units of `graph`
  std::vector<FoldUnit> units;
  // The run (FoldUnit::run) whose layers are unequal; -1: there is none.
  int unequal_run = -1;
  // Returns for each unit of the folded graph how many units of the model it stands for.
  std::vector<int64_t> counts() const;
};

// Folds a forward graph. Runs are found one after the other by repeated_blocks (graph/repeat.h):
// encoder, then decoder. A run is not folded where later ops read from layers that would be left
// out, as skip connections of a U-Net do. Errors: those of Graph::verify_made on the folded graph,
// which would be a fault of this function.
Result<Fold> fold_layers(const Graph& forward);

// A fold with a few of its unequal layers.
struct Samples {
  Fold fold;  // the graph with the sampled layers only, and its units
  // For a unit of the unsampled graph: the two units of `fold` that are next to it in size.
  struct Between {
    int smaller = 0, larger = 0;
    double share = 0;  // 0: the unit is as large as the smaller one; 1: as large as the larger one
  };
  // By unit of the unsampled graph.
  std::vector<Between> between;
  std::vector<int> sampled;  // by unit of `fold`: the same unit in the unsampled graph
};

// Samples a few of the unequal layers: the smallest, the largest, the first one in the model, and
// some between the smallest and the largest. The size of a layer is the number of elements of its
// parameters and outputs. Returns nothing if there are no unequal layers, or if the layers that are
// not sampled cannot be left out because other ops read from them.
std::optional<Samples> sample_layers(const Fold& fold);

}  // namespace tessera
