// Products of a graph whose rows lie on several ranks. Rank r owns a stretch of nodes: their rows of the
// matrix, their rows of x and of y. To compute its rows of y it needs the rows of x that its columns
// name; those of other ranks are its halo, which follows from the matrix, and from the sampler: a
// sampled product sends only the rows that the sample names.
//
//   const RowCuts cuts = cut_by_work(graph, sampling, ranks);
//   const std::vector<GraphPart> parts = cut_graph(graph, cuts, sampling);
//   // on rank r, with `part` = parts[r] and x of part.local_nodes() rows, of which it fills its own:
//   fetch_halo(comm, part, x);          // runtime/graph_halo.h
//   TESSERA_TRY_VOID(spmm(part.view<double>({}), options, x, y));
//   ...
//   TESSERA_TRY_VOID(spmm_grad_x(part.view<double>({}), options, dy, dx));
//   return_halo(comm, part, dx);        // dx of the own rows is now complete
//
// A part numbers nodes anew: its own first, in their order, then its halo by owner and number. Edges
// keep their places in their rows, and samplers see the rows' numbers in the whole graph, so a part
// samples as the whole graph does and its rows of y are equal to the serial ones bit for bit. Gradients
// are sums over ranks: equal up to the order of additions, and exactly where these are exact.
//
// Bytes: a rank sends halo_bytes() forward, one message to each rank that needs rows of it, and its
// halo's rows once on the way back; the communicator counts the same (Counters::point_to_point).
// A part belongs to one sampling: another seed needs another halo. Edges that it does not use have the
// column kUnused, which no product with that sampling reads.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/sparse/graphs/csr.h"
#include "tessera/sparse/graphs/sample.h"
#include "tessera/sparse/graphs/spmm.h"

namespace tessera::sparse {

// Rank r has the rows borders[r] .. borders[r + 1].
struct RowCuts {
  std::vector<int64_t> borders = {0};
  int64_t ranks() const { return static_cast<int64_t>(borders.size()) - 1; }
  int64_t rows(int64_t rank) const;
  int64_t owner(int64_t row) const;
};
// Rows in equal numbers, the first ranks one more; or each rank about as many slots and rows. Ranks may
// be without rows.
RowCuts cut_by_rows(int64_t rows, int64_t ranks);
RowCuts cut_by_work(const CsrGraph& graph, const Sampling& sampling, int64_t ranks);

inline constexpr int32_t kUnused = -1;

struct GraphPart {
  int64_t rank = 0;
  int64_t first_row = 0;                    // of the whole graph
  CsrGraph graph;                           // own rows, columns in this part's numbers
  std::vector<int64_t> halo;                // nodes of the whole graph, ascending
  std::vector<int64_t> halo_begin;          // by owner, ranks + 1: its stretch of `halo`
  std::vector<std::vector<int64_t>> sends;  // by receiver: own rows, in this part's numbers

  int64_t own_nodes() const { return graph.rows(); }
  int64_t local_nodes() const { return own_nodes() + static_cast<int64_t>(halo.size()); }
  // For spmm. `values`: as view_of; the own edges' values.
  template <class T>
  CsrView<T> view(const std::vector<T>& values) const;
};
// All parts of a square graph.
std::vector<GraphPart> cut_graph(const CsrGraph& graph, const RowCuts& cuts,
                                 const Sampling& sampling);

// What the rank sends in fetch_halo and in return_halo.
int64_t halo_bytes(const GraphPart& part, int64_t features, int64_t element_bytes);
int64_t returned_bytes(const GraphPart& part, int64_t features, int64_t element_bytes);

}  // namespace tessera::sparse
