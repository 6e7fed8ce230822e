// The verifier proves, before a run, that the programs of all ranks together compute the graph
// (docs/concepts.md). It does not trust lowering: it interprets the programs abstractly over
// (tensor, region, parts) and knows only the graph. A rejection names one of these rules:
//
//   operand      Every compute reads complete values of exactly the regions that its box needs.
//                Only linear ops may read parts.
//   coverage     Every persistent tensor is updated exactly once over its whole home region, and
//                fetches are complete. Together the ranks execute every op over its whole iteration
//                space. Parts that are merged are disjoint: nothing is counted twice.
//   instruction  A compute agrees with its op in the graph: kind, attributes, dtypes, shapes of
//                views.
//   tier         A kernel works in one tier, device or host. Communication and loads use device
//                buffers. Only copies with a wait touch the disk.
//   message      Both ends of a send and receive, and all members of a collective, agree on tensor,
//                region, shape, dtype and order.
//   order        The ranks do not deadlock: the merged order of all ranks' instructions has no
//                cycle if issues do not block (on request also if they block).
//   lifetime     Nothing is read before it is written or after it is freed, and nothing is written
//                while it is in flight. Buffers that are alive at the same time do not overlap.
//   rows         An instruction that touches a table of which the device has only some rows
//                (RowCache) names these rows by ids whose fetch was awaited and is not released. If
//                an op changes the rows, the release says so. All fetches of a step are released in
//                the same step.
//   memory       All buffers lie inside their arenas, and the arenas stay within the limit.
//
//   const std::vector<Rejection> found = verify(graph, programs);
//   if (!found.empty()) fmt::print("{}\n", found.front().to_string());
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
  // True: the ranks must not deadlock even if sends and collectives block at their issue.
  bool blocking = false;
  int64_t memory_limit_bytes = 0;  // a rank's device arena; 0: none
};

// Verifies programs[r], the program of rank r, for all ranks. An empty result means accepted.
// Returns only the first few rejections.
std::vector<Rejection> verify(const Graph& graph, const std::vector<Program>& programs,
                              const VerifyOptions& options = {});

}  // namespace tessera
