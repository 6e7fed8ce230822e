// A small step made by hand: two ranks, two micro-batches, a message from rank 0 to rank 1, a
// collective on a channel of its own.
#pragma once

#include "tessera/simulate/simulation.h"

namespace tessera {

inline TraceEvent test_event(int32_t rank, Lane lane, BlockRef block, int64_t micro_batch,
                             int32_t instruction, double start_s, double end_s, int32_t label,
                             int32_t what) {
  TraceEvent event;
  event.rank = rank;
  event.lane = lane;
  event.block = block;
  event.micro_batch = micro_batch;
  event.instruction = instruction;
  event.start_s = start_s;
  event.end_s = end_s;
  event.label = label;
  event.what = what;
  return event;
}

inline Simulation test_simulation() {
  const BlockRef forward(BlockKind::kForward), next(BlockKind::kForward, 1),
      backward(BlockKind::kBackward);
  Simulation s;
  s.step_time_s = 0.007;
  s.ranks = 4;
  s.tokens = 1024;
  s.labels = {"block.0.up", "matmul", "x \"quoted\"", "send pp",
              "recv pp",    "grad",   "all_reduce dp"};
  s.events.push_back(test_event(0, Lane::kCompute, forward, 0, 3, 0.0, 0.001, 0, 1));
  s.events.push_back(test_event(0, Lane::kMessage, forward, 0, 4, 0.001, 0.0015, 2, 3));
  s.events.back().bytes = 4096;
  s.events.back().match = 7;
  s.events.push_back(test_event(0, Lane::kCompute, forward, 1, 3, 0.001, 0.002, 0, 1));
  s.events.push_back(test_event(0, Lane::kCollective, backward, 1, 9, 0.002, 0.006, 5, 6));
  s.events.back().bytes = 1 << 20;
  s.events.back().channel = 2;
  s.events.push_back(test_event(1, Lane::kMessage, next, 0, 0, 0.001, 0.0015, 2, 4));
  s.events.back().match = 7;
  s.events.push_back(test_event(1, Lane::kCompute, next, 0, 2, 0.0015, 0.007, 0, 1));
  s.roles.resize(2);
  s.roles[0].ranks = 2;
  s.roles[0].memory.timeline = {{0, 100}, {0.001, 250}};
  s.roles[1].representative = 1;
  s.roles[1].ranks = 2;
  return s;
}

}  // namespace tessera
