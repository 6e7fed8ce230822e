// Folds a deep model into a shallow one. A planner asks many questions about a model whose layers
// are equal; each is answered with two layers of every run of equal layers, and the answer is
// counted as often as the model has the layer.
//
//   TESSERA_TRY(const Fold fold, fold_layers(model->graph));
//   fold.graph;                      // gpt with 96 layers: its forward graph with two
//   fold.units.size();               // 96 layers and the ops around them, in the model's order
//   fold.units[50].stand_in;         // the unit of `fold.graph` that costs the same
//
// Planners deal with units: a layer of a run, or one op that stands outside all runs. A pipeline
// stage is a row of neighbouring units.
//
// Layers that are built alike but are of unequal sizes stay in the graph, each as a unit of its
// own. If there are many, a few are sampled (sample_layers) and priced; the prices of the others
// follow.
//
// Invariants: units are in graph order and cover every forward op once. The first layer of a run
// stands for itself, the second one for itself and all later ones. A graph in which nothing repeats
// more than twice is its own fold.
#pragma once

#include <optional>
#include <vector>

#include "tessera/graph/graph.h"

namespace tessera {

struct FoldUnit {
  std::vector<OpId> ops;  // of the model's forward graph, in order
  int stand_in = 0;       // a unit of the folded graph
  // The number of the run of equal layers that the unit belongs to; -1: none.
  int run = -1;
};

struct Fold {
  Graph graph;               // forward
  std::vector<int> unit_of;  // by op of `graph`: its unit there
  int folded_units = 0;      // number of units of `graph`
  std::vector<FoldUnit> units;
  // The run (FoldUnit::run) whose layers are unequal; -1: there is none.
  int unequal_run = -1;
  // Returns for each unit of the folded graph how many units of the model it stands for.
  std::vector<int64_t> counts() const;
};

// Folds a forward graph. Runs are found one after the other by repeated_blocks (graph/repeat.h):
// encoder, then decoder. A run stays whole where later ops read from layers that would be left out
// (skip connections of a U-Net). Errors: those of Graph::verify_made, which would be a fault of
// this function.
Result<Fold> fold_layers(const Graph& forward);

// A fold with a few of its unequal layers.
struct Samples {
  Fold fold;  // its units are those of the sampled graph
  // For a unit of the graph that was sampled: the units of `fold` between which it lies by size.
  struct Between {
    int smaller = 0, larger = 0;
    double share = 0;  // 0: as the smaller one, 1: as the larger one
  };
  // By unit of the graph that was sampled.
  std::vector<Between> between;
  std::vector<int> sampled;  // by unit of `fold`: the unit of the graph that was sampled
};

// Samples the smallest unequal layer, the largest, the first, and some between them. The size of a
// layer is the number of elements of its parameters and outputs. Returns nothing if there are no
// unequal layers, or if some cannot be left out.
std::optional<Samples> sample_layers(const Fold& fold);

}  // namespace tessera
