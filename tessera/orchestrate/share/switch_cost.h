// How long a job pauses when its GPUs change: a constant, or the bytes that its state moves over the
// links of the cluster.
//
// By bytes a pause has up to three parts:
//   restart  `seconds`, where processes start: a first start, one after a stop, and a move to nodes of
//            which the job had none. A policy that does not change jobs live starts them each time.
//   reload   of a start that is not the first: the state is written once over the network cards of
//            the nodes that the job leaves, and each node that it gets reads what its GPUs hold.
//   move     of a live change: each GPU that is new, and, if the shards are no longer as large as
//            they were, each GPU, gets its state. It comes over the links inside the node as far as
//            the node's GPUs held it; the rest comes over the network cards, in equal shares from all
//            nodes that the job had.
// Live, the slowest node, sender or receiver, counts. The bytes are an upper bound: a GPU could keep a
// part of a shard of another size, which is not subtracted.
//
//   SwitchCost cost{.seconds = 20, .links = {.node = 25e9, .gpu = 300e9}};
//   const Pause pause = cost.of({.nodes = {{4, 4}, {0, 4}}, .before = state, .after = state,
//                                .was_running = true, .is_live = true});
//   // data parallel, 10 GB: 4 new GPUs get 10 GB each over one node's cards: 40e9 / 25e9 s
#pragma once

#include <vector>

#include "tessera/orchestrate/share/job.h"

namespace tessera::share {

// Bytes a second in each direction. 0: the cluster does not say, and pauses are constants.
struct LinkRates {
  double node = 0;  // of all network cards of a node
  double gpu = 0;   // of a GPU to the others of its node
  bool is_known() const { return node > 0 && gpu > 0; }
};

struct Switch {
  struct NodeGpus {
    int before = 0, after = 0;
  };
  std::vector<NodeGpus> nodes;  // the nodes of which it had or gets GPUs
  StateBytes before, after;     // under the plans that it had and gets
  bool has_state = true;        // whether it has run: a first start has nothing to move
  bool was_running = false;     // whether it runs on the GPUs of before until now
  bool is_live = false;         // whether the policy changes running jobs without a stop
};

struct Pause {
  double seconds = 0;
  double moved_bytes = 0;  // that GPUs get, and of a reload also what is written
};

struct SwitchCost {
  double seconds = 0;        // of a start, and of a stop and start elsewhere
  double live_seconds = -1;  // of a running job that keeps a GPU; negative: as `seconds`
  LinkRates links = {};

  Pause of(const Switch& change) const;
};

// Returns the nodes of a change from one allocation to another.
std::vector<Switch::NodeGpus> nodes_of_change(const Allocation& before, const Allocation& after);
// Returns the same for GPUs that are not yet placed: the job stays on its nodes as far as it can.
std::vector<Switch::NodeGpus> nodes_of_change(const Shape& before, const Shape& after);

}  // namespace tessera::share
