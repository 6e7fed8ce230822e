// The verifier: proves before a run that the programs of all ranks together compute the graph
// (docs/concepts.md). It does not trust lowering: it interprets the programs abstractly
// over (tensor, region, parts) and knows only the graph. Rules, each named in its rejection:
//   operand       every compute reads complete values of exactly the regions that its box needs
//   (parts only for linear ops) coverage      every persistent tensor is updated exactly once over
//   its whole home region; fetches are complete; together the
//                 ranks execute every op over its whole iteration space; merged parts are disjoint
//                 (nothing counted twice)
//   instruction   a compute says what the graph says: kind, attributes, dtypes, shapes of views
//   tier          kernels work in one tier, device or host; communication and loads on device
//                 buffers; what touches disk is a copy with a wait
//   message       both ends of every send / receive and all members of a collective agree on
//   tensor, region, shape, dtype, order order         the merged order of all ranks is acyclic
//   under non-blocking semantics (and optionally blocking): no deadlock lifetime      no read
//   before write, none after free, no write to memory in flight, buffers alive at the same time do
//   not overlap memory        arenas hold all offsets, and fit the limit
#pragma once

#include <string>
#include <vector>

#include "tessera/program/program.h"

namespace tessera {

struct Rejection {
  std::string rule;  // "operand", "coverage", ...
  int rank = -1;
  std::string instruction;  // "backward[17] wait #5"
  std::string tensor;
  std::string message;            // what was expected, what was found
  std::string to_string() const;  // one line
};

struct VerifyOptions {
  bool blocking = false;  // also demand acyclic order if sends and collectives block at their issue
  int64_t memory_limit_bytes = 0;  // a rank's device arena; 0: none
};

// programs[r] is the program of rank r, all ranks. Empty result: accepted. At most a few rejections
// are returned (the first ones).
std::vector<Rejection> verify(const Graph& graph, const std::vector<Program>& programs,
                              const VerifyOptions& options = {});

}  // namespace tessera
