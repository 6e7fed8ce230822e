// Graphs whose numbers of edges a row follow a power law, as those of the web, of citations and of
// friends do.
//
//   const CsrGraph graph = power_law_graph({.nodes = 1'000'000, .edges = 10'000'000, .seed = 7});
//
// The model is that of Chung and Lu: node of rank r (0 the heaviest) has weight
// w_r = (r + r0)^(-1 / (exponent - 1)), r0 chosen so that no node is expected to have more than
// `max_share` of the edges; each edge draws its row and its column with probabilities proportional
// to the weights, independently; self-loops and edges that are there already are drawn again, so
// the number of edges is exact; where two heavy nodes would have several edges they have one, so in
// dense graphs the heaviest rows fall short of their share. Ranks are numbered at random, as files number their nodes, unless
// `by_rank` is set. Everything is a function of the options: Philox(seed, stream) at the number of
// the draw.
#pragma once

#include <cstdint>

#include "tessera/base/result.h"
#include "tessera/sparse/graphs/csr.h"

namespace tessera::sparse {

struct PowerLawOptions {
  int64_t nodes = 0;
  int64_t edges = 0;        // directed
  double exponent = 2.5;    // of the distribution of degrees; above 2
  double max_share = 0.01;  // of the edges, in one row
  bool by_rank = false;
  uint64_t seed = 0;
};
// Sorted, without values. Errors: an exponent of 2 or below, a share outside (0, 1], or more than
// an eighth of all pairs as edges, which drawing again would take too long to find.
Result<CsrGraph> power_law_graph(const PowerLawOptions& options);

}  // namespace tessera::sparse
