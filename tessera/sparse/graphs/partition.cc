#include "tessera/sparse/graphs/partition.h"

#include <algorithm>

#include "tessera/base/check.h"

namespace tessera::sparse {
namespace {

size_t as_size(int64_t index) { return static_cast<size_t>(index); }

// Calls f(edge, column) for the edges of a stretch of rows that the sampling uses; an edge may come
// twice.
template <class F>
void for_each_slot(const CsrGraph& graph, const Sampling& sampling, int64_t first, int64_t last,
                   const F& f) {
  std::vector<int32_t> positions;
  for (int64_t row = first; row < last; ++row) {
    positions.resize(as_size(sampled_count(sampling, graph.degree(row))));
    sampled_positions(sampling, row, graph.degree(row), positions.data());
    for (const int32_t position : positions) {
      const int64_t edge = graph.offsets[as_size(row)] + position;
      f(edge, int64_t{graph.columns[as_size(edge)]});
    }
  }
}

GraphPart part_of(const CsrGraph& graph, const RowCuts& cuts, const Sampling& sampling,
                  int64_t rank) {
  GraphPart part;
  part.rank = rank;
  part.first_row = cuts.borders[as_size(rank)];
  const int64_t last_row = cuts.borders[as_size(rank + 1)];
  const auto own = [&](int64_t node) { return node >= part.first_row && node < last_row; };

  for_each_slot(graph, sampling, part.first_row, last_row, [&](int64_t, int64_t column) {
    if (!own(column)) part.halo.push_back(column);
  });
  std::sort(part.halo.begin(), part.halo.end());
  part.halo.erase(std::unique(part.halo.begin(), part.halo.end()), part.halo.end());
  for (const int64_t border : cuts.borders) {
    part.halo_begin.push_back(std::lower_bound(part.halo.begin(), part.halo.end(), border) -
                              part.halo.begin());
  }

  const int64_t first_edge = graph.offsets[as_size(part.first_row)];
  const int64_t last_edge = graph.offsets[as_size(last_row)];
  part.graph.column_count = last_row - part.first_row + static_cast<int64_t>(part.halo.size());
  for (int64_t row = part.first_row; row < last_row; ++row) {
    part.graph.offsets.push_back(graph.offsets[as_size(row + 1)] - first_edge);
  }
  part.graph.columns.assign(as_size(last_edge - first_edge), kUnused);
  if (!graph.values.empty()) {
    part.graph.values.assign(graph.values.begin() + first_edge, graph.values.begin() + last_edge);
  }
  for_each_slot(graph, sampling, part.first_row, last_row, [&](int64_t edge, int64_t column) {
    const int64_t place = own(column)
                              ? column - part.first_row
                              : last_row - part.first_row +
                                    (std::lower_bound(part.halo.begin(), part.halo.end(), column) -
                                     part.halo.begin());
    part.graph.columns[as_size(edge - first_edge)] = static_cast<int32_t>(place);
  });
  return part;
}

}  // namespace

int64_t RowCuts::rows(int64_t rank) const {
  return borders[as_size(rank + 1)] - borders[as_size(rank)];
}

int64_t RowCuts::owner(int64_t row) const {
  return std::upper_bound(borders.begin(), borders.end(), row) - borders.begin() - 1;
}

RowCuts cut_by_rows(int64_t rows, int64_t ranks) {
  RowCuts cuts;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    cuts.borders.push_back(cuts.borders.back() + rows / ranks + (rank < rows % ranks ? 1 : 0));
  }
  return cuts;
}

RowCuts cut_by_work(const CsrGraph& graph, const Sampling& sampling, int64_t ranks) {
  const int64_t all = graph.rows() + sampled_edges(graph, sampling);
  RowCuts cuts;
  int64_t done = 0;
  for (int64_t row = 0; row < graph.rows(); ++row) {
    // A row goes to the next rank if its middle lies behind this one's share.
    const int64_t work = 1 + sampled_count(sampling, graph.degree(row));
    while (cuts.ranks() + 1 < ranks && (2 * done + work) * ranks > 2 * all * (cuts.ranks() + 1)) {
      cuts.borders.push_back(row);
    }
    done += work;
  }
  while (cuts.ranks() < ranks) cuts.borders.push_back(graph.rows());
  return cuts;
}

template <class T>
CsrView<T> GraphPart::view(const std::vector<T>& values) const {
  CsrView<T> view = view_of<T>(graph, values);
  view.first_row = first_row;
  return view;
}

std::vector<GraphPart> cut_graph(const CsrGraph& graph, const RowCuts& cuts,
                                 const Sampling& sampling) {
  TESSERA_CHECK(graph.rows() == graph.column_count, "{} rows and {} columns", graph.rows(),
                graph.column_count);
  TESSERA_CHECK(cuts.borders.back() == graph.rows(), "cuts of {} rows, a graph of {}",
                cuts.borders.back(), graph.rows());
  std::vector<GraphPart> parts;
  for (int64_t rank = 0; rank < cuts.ranks(); ++rank) {
    parts.push_back(part_of(graph, cuts, sampling, rank));
    parts.back().sends.resize(as_size(cuts.ranks()));
  }
  for (const GraphPart& reader : parts) {
    for (int64_t owner = 0; owner < cuts.ranks(); ++owner) {
      for (int64_t i = reader.halo_begin[as_size(owner)]; i < reader.halo_begin[as_size(owner + 1)];
           ++i) {
        parts[as_size(owner)].sends[as_size(reader.rank)].push_back(reader.halo[as_size(i)] -
                                                                    cuts.borders[as_size(owner)]);
      }
    }
  }
  return parts;
}

int64_t halo_bytes(const GraphPart& part, int64_t features, int64_t element_bytes) {
  int64_t rows = 0;
  for (const auto& list : part.sends) rows += static_cast<int64_t>(list.size());
  return rows * features * element_bytes;
}

int64_t returned_bytes(const GraphPart& part, int64_t features, int64_t element_bytes) {
  return static_cast<int64_t>(part.halo.size()) * features * element_bytes;
}

template CsrView<float> GraphPart::view(const std::vector<float>&) const;
template CsrView<double> GraphPart::view(const std::vector<double>&) const;

}  // namespace tessera::sparse
