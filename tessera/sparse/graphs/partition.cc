#include "tessera/sparse/graphs/partition.h"

#include <algorithm>
#include <type_traits>

#include "tessera/base/check.h"

namespace tessera::sparse {
namespace {

size_t at(int64_t index) { return static_cast<size_t>(index); }

constexpr int64_t kFetchTag = 1;
constexpr int64_t kReturnTag = 2;

// Calls f(edge, column) for the edges of a stretch of rows that the sampling uses; an edge may come
// twice.
template <class F>
void for_each_slot(const CsrGraph& graph, const Sampling& sampling, int64_t first, int64_t last,
                   const F& f) {
  std::vector<int32_t> positions;
  for (int64_t row = first; row < last; ++row) {
    positions.resize(at(sampled_count(sampling, graph.degree(row))));
    sampled_positions(sampling, row, graph.degree(row), positions.data());
    for (const int32_t position : positions) {
      const int64_t edge = graph.offsets[at(row)] + position;
      f(edge, int64_t{graph.columns[at(edge)]});
    }
  }
}

GraphPart part_of(const CsrGraph& graph, const RowCuts& cuts, const Sampling& sampling,
                  int64_t rank) {
  GraphPart part;
  part.rank = rank;
  part.first_row = cuts.borders[at(rank)];
  const int64_t last_row = cuts.borders[at(rank + 1)];
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

  const int64_t first_edge = graph.offsets[at(part.first_row)];
  const int64_t last_edge = graph.offsets[at(last_row)];
  part.graph.column_count = last_row - part.first_row + static_cast<int64_t>(part.halo.size());
  for (int64_t row = part.first_row; row < last_row; ++row) {
    part.graph.offsets.push_back(graph.offsets[at(row + 1)] - first_edge);
  }
  part.graph.columns.assign(at(last_edge - first_edge), kUnused);
  if (!graph.values.empty()) {
    part.graph.values.assign(graph.values.begin() + first_edge, graph.values.begin() + last_edge);
  }
  for_each_slot(graph, sampling, part.first_row, last_row, [&](int64_t edge, int64_t column) {
    const int64_t place = own(column)
                              ? column - part.first_row
                              : last_row - part.first_row +
                                    (std::lower_bound(part.halo.begin(), part.halo.end(), column) -
                                     part.halo.begin());
    part.graph.columns[at(edge - first_edge)] = static_cast<int32_t>(place);
  });
  return part;
}

template <class T>
constexpr DType dtype_of() {
  return std::is_same_v<T, float> ? DType::kFloat32 : DType::kFloat64;
}

template <class T>
comm::ArrayView rows_of(T* data, int64_t rows, int64_t columns, int64_t stride) {
  return {reinterpret_cast<std::byte*>(data), Box::whole({rows, columns}), {stride, 1}};
}

int64_t halo_rows(const GraphPart& part, int64_t owner) {
  return part.halo_begin[at(owner + 1)] - part.halo_begin[at(owner)];
}
template <class T>
T* halo_row(const GraphPart& part, const Matrix<T>& matrix, int64_t owner) {
  return matrix.data + (part.own_nodes() + part.halo_begin[at(owner)]) * matrix.stride;
}

template <class T>
void check_matrix(const comm::Communicator& comm, const GraphPart& part, const Matrix<T>& matrix) {
  TESSERA_CHECK(comm.rank() == part.rank, "rank {} has the part of rank {}", comm.rank(),
                part.rank);
  TESSERA_CHECK(comm.size() == static_cast<int>(part.sends.size()), "{} ranks, parts for {}",
                comm.size(), part.sends.size());
  TESSERA_CHECK(matrix.rows == part.local_nodes(), "{} rows, {} nodes", matrix.rows,
                part.local_nodes());
}

}  // namespace

int64_t RowCuts::rows(int64_t rank) const { return borders[at(rank + 1)] - borders[at(rank)]; }

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
    parts.back().sends.resize(at(cuts.ranks()));
  }
  for (const GraphPart& reader : parts) {
    for (int64_t owner = 0; owner < cuts.ranks(); ++owner) {
      for (int64_t i = reader.halo_begin[at(owner)]; i < reader.halo_begin[at(owner + 1)]; ++i) {
        parts[at(owner)].sends[at(reader.rank)].push_back(reader.halo[at(i)] -
                                                          cuts.borders[at(owner)]);
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

template <class T>
void fetch_halo(comm::Communicator& comm, const GraphPart& part, const Matrix<T>& x) {
  check_matrix(comm, part, x);
  const comm::Label label{"sparse product", "x", "ranks"};
  std::vector<comm::Handle> handles;
  std::vector<std::vector<T>> packed(part.sends.size());
  for (int peer = 0; peer < comm.size(); ++peer) {
    if (const int64_t rows = halo_rows(part, peer); rows > 0) {
      handles.push_back(comm.issue_recv(peer, kFetchTag, dtype_of<T>(),
                                        rows_of(halo_row(part, x, peer), rows, x.columns, x.stride),
                                        label));
    }
    const std::vector<int64_t>& list = part.sends[at(peer)];
    if (list.empty()) continue;
    std::vector<T>& buffer = packed[at(peer)];
    for (const int64_t row : list) {
      const T* const from = x.data + row * x.stride;
      buffer.insert(buffer.end(), from, from + x.columns);
    }
    handles.push_back(comm.issue_send(
        peer, kFetchTag, dtype_of<T>(),
        rows_of(buffer.data(), static_cast<int64_t>(list.size()), x.columns, x.columns), label));
  }
  for (const comm::Handle handle : handles) comm.wait(handle);
}

template <class T>
void return_halo(comm::Communicator& comm, const GraphPart& part, const Matrix<T>& dx) {
  check_matrix(comm, part, dx);
  const comm::Label label{"sparse product", "dx", "ranks"};
  std::vector<comm::Handle> handles;
  std::vector<std::vector<T>> arrived(part.sends.size());
  for (int peer = 0; peer < comm.size(); ++peer) {
    const int64_t rows = static_cast<int64_t>(part.sends[at(peer)].size());
    if (rows > 0) {
      arrived[at(peer)].resize(at(rows * dx.columns));
      handles.push_back(
          comm.issue_recv(peer, kReturnTag, dtype_of<T>(),
                          rows_of(arrived[at(peer)].data(), rows, dx.columns, dx.columns), label));
    }
    if (const int64_t sent = halo_rows(part, peer); sent > 0) {
      handles.push_back(
          comm.issue_send(peer, kReturnTag, dtype_of<T>(),
                          rows_of(halo_row(part, dx, peer), sent, dx.columns, dx.stride), label));
    }
  }
  for (const comm::Handle handle : handles) comm.wait(handle);
  for (size_t peer = 0; peer < arrived.size(); ++peer) {
    const T* from = arrived[peer].data();
    for (const int64_t row : part.sends[peer]) {
      T* const to = dx.data + row * dx.stride;
      for (int64_t j = 0; j < dx.columns; ++j) to[j] += *from++;
    }
  }
}

#define TESSERA_PARTITION(T)                                                                       \
  template CsrView<T> GraphPart::view(const std::vector<T>&) const;                                \
  template void fetch_halo(comm::Communicator&, const GraphPart&, const Matrix<T>&);               \
  template void return_halo(comm::Communicator&, const GraphPart&, const Matrix<T>&);
TESSERA_PARTITION(float)
TESSERA_PARTITION(double)
#undef TESSERA_PARTITION

}  // namespace tessera::sparse
