#include "tessera/sparse/graphs/csr.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "tessera/base/check.h"

namespace tessera::sparse {
namespace {

size_t as_index(int64_t index) { return static_cast<size_t>(index); }

// Calls f(row, edge) for all edges in order.
template <class F>
void for_each_edge(const CsrGraph& graph, const F& f) {
  for (int64_t row = 0; row < graph.rows(); ++row) {
    for (int64_t e = graph.offsets[as_index(row)]; e < graph.offsets[as_index(row) + 1]; ++e)
      f(row, e);
  }
}

Status check_symmetric(const CsrGraph& graph) {
  if (graph.rows() != graph.column_count) {
    return invalid_input(
        fmt::format("expected a symmetric matrix, found {} rows and {} columns: it is not square",
                    graph.rows(), graph.column_count));
  }
  const CsrGraph turned = transpose(graph);
  for (int64_t row = 0; row < graph.rows(); ++row) {
    // Both matrices have sorted columns, so at the first difference one of them lacks an edge.
    int64_t a = graph.offsets[as_index(row)];
    int64_t b = turned.offsets[as_index(row)];
    const int64_t a_end = graph.offsets[as_index(row) + 1];
    const int64_t b_end = turned.offsets[as_index(row) + 1];
    for (; a < a_end || b < b_end; ++a, ++b) {
      const int64_t none = std::numeric_limits<int64_t>::max();
      const int64_t here = a < a_end ? graph.columns[as_index(a)] : none;
      const int64_t there = b < b_end ? turned.columns[as_index(b)] : none;
      if (here < there) {
        return invalid_input(
            fmt::format("expected a symmetric matrix, found the edge ({}, {}) but not ({}, {})",
                        row, here, here, row));
      }
      if (there < here) {
        return invalid_input(
            fmt::format("expected a symmetric matrix, found the edge ({}, {}) but not ({}, {})",
                        there, row, row, there));
      }
      if (graph.value(a) != turned.value(b)) {
        return invalid_input(fmt::format(
            "expected a symmetric matrix, found value {} at ({}, {}) and {} at ({}, {})",
            graph.value(a), row, here, turned.value(b), here, row));
      }
    }
  }
  return {};
}

// Makes a graph from edges, each of which occurs once. Sorts them by row and then by column: one
// counting sort by column, then a stable one by row.
CsrGraph sorted_csr(int64_t rows, int64_t columns, const std::vector<Edge>& edges, bool valued) {
  const auto starts = [&](int64_t count, auto key) {
    std::vector<int64_t> start(as_index(count) + 1, 0);
    for (const Edge& edge : edges) ++start[as_index(key(edge)) + 1];
    std::partial_sum(start.begin(), start.end(), start.begin());
    return start;
  };
  std::vector<int64_t> next = starts(columns, [](const Edge& edge) { return edge.column; });
  std::vector<Edge> by_column(edges.size());
  for (const Edge& edge : edges) by_column[as_index(next[as_index(edge.column)]++)] = edge;

  CsrGraph graph;
  graph.column_count = columns;
  graph.offsets = starts(rows, [](const Edge& edge) { return edge.row; });
  graph.columns.resize(edges.size());
  if (valued) graph.values.resize(edges.size());
  next = graph.offsets;
  for (const Edge& edge : by_column) {
    const size_t to = as_index(next[as_index(edge.row)]++);
    graph.columns[to] = edge.column;
    if (valued) graph.values[to] = edge.value;
  }
  return graph;
}

std::vector<double> row_sums(const CsrGraph& graph) {
  std::vector<double> sums(as_index(graph.rows()), 0);
  for_each_edge(graph, [&](int64_t row, int64_t e) { sums[as_index(row)] += graph.value(e); });
  return sums;
}

}  // namespace

int64_t CsrGraph::max_degree() const {
  int64_t most = 0;
  for (int64_t row = 0; row < rows(); ++row) most = std::max(most, degree(row));
  return most;
}

Status check(const CsrGraph& graph, const CsrDemands& demands) {
  if (graph.offsets.empty() || graph.offsets.front() != 0) {
    return invalid_input("expected row offsets that begin with 0, found others");
  }
  for (int64_t row = 0; row < graph.rows(); ++row) {
    if (graph.degree(row) < 0) {
      return invalid_input(
          fmt::format("expected row offsets that do not fall, found {} after {} at row {}",
                      graph.offsets[as_index(row) + 1], graph.offsets[as_index(row)], row));
    }
  }
  if (graph.offsets.back() != graph.edges()) {
    return invalid_input(fmt::format("expected row offsets that end with the {} edges, found {}",
                                     graph.edges(), graph.offsets.back()));
  }
  if (!graph.values.empty() && graph.values.size() != graph.columns.size()) {
    return invalid_input(fmt::format("expected a value for each of {} edges, found {} values",
                                     graph.edges(), graph.values.size()));
  }
  for (int64_t row = 0; row < graph.rows(); ++row) {
    for (int64_t e = graph.offsets[as_index(row)]; e < graph.offsets[as_index(row) + 1]; ++e) {
      const int64_t column = graph.columns[as_index(e)];
      if (column < 0 || column >= graph.column_count) {
        return invalid_input(fmt::format("expected columns in [0, {}), found {} in row {}",
                                         graph.column_count, column, row));
      }
      if (!std::isfinite(graph.value(e))) {
        return invalid_input(fmt::format("expected finite values, found {} at ({}, {})",
                                         graph.value(e), row, column));
      }
      const bool first = e == graph.offsets[as_index(row)];
      if ((demands.sorted || demands.symmetric) && !first &&
          graph.columns[as_index(e - 1)] >= graph.columns[as_index(e)]) {
        return invalid_input(fmt::format("expected ascending columns, found {} after {} in row {}",
                                         column, graph.columns[as_index(e - 1)], row));
      }
    }
  }
  return demands.symmetric ? check_symmetric(graph) : Status{};
}

Result<CsrGraph> csr_from_edges(int64_t rows, int64_t columns, const std::vector<Edge>& edges,
                                const EdgeOptions& options) {
  const int64_t most = std::numeric_limits<int32_t>::max();
  if (rows < 0 || columns < 0 || rows > most || columns > most) {
    return invalid_input(
        fmt::format("expected at most {} rows and columns, found {} x {}", most, rows, columns));
  }
  for (const Edge& edge : edges) {
    if (edge.row < 0 || edge.row >= rows || edge.column < 0 || edge.column >= columns) {
      return invalid_input(fmt::format("expected an edge inside {} x {}, found ({}, {})", rows,
                                       columns, edge.row, edge.column));
    }
    if (!std::isfinite(edge.value)) {
      return invalid_input(fmt::format("expected finite values, found {} at ({}, {})", edge.value,
                                       edge.row, edge.column));
    }
  }
  CsrGraph graph;
  if (options.mirror) {
    if (rows != columns) {
      return invalid_input(fmt::format(
          "expected a square matrix of undirected edges, found {} x {}", rows, columns));
    }
    std::vector<Edge> both = edges;
    for (const Edge& edge : edges) {
      if (edge.row != edge.column) both.push_back({edge.column, edge.row, edge.value});
    }
    graph = sorted_csr(rows, columns, both, options.valued);
  } else {
    graph = sorted_csr(rows, columns, edges, options.valued);
  }
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t e = graph.offsets[as_index(row)] + 1; e < graph.offsets[as_index(row) + 1]; ++e) {
      if (graph.columns[as_index(e)] == graph.columns[as_index(e - 1)]) {
        return invalid_input(fmt::format("expected each edge once{}, found ({}, {}) twice",
                                         options.mirror ? " in one direction" : "", row,
                                         graph.columns[as_index(e)]));
      }
    }
  }
  if (options.symmetric) TESSERA_TRY_VOID(check_symmetric(graph));
  return graph;
}

CsrGraph transpose(const CsrGraph& graph) {
  CsrGraph out;
  out.column_count = graph.rows();
  out.offsets.assign(as_index(graph.column_count) + 1, 0);
  for (const int32_t column : graph.columns) ++out.offsets[as_index(column) + 1];
  std::partial_sum(out.offsets.begin(), out.offsets.end(), out.offsets.begin());
  out.columns.resize(graph.columns.size());
  out.values.resize(graph.values.size());
  std::vector<int64_t> next = out.offsets;
  for_each_edge(graph, [&](int64_t row, int64_t e) {
    const size_t to = as_index(next[as_index(graph.columns[as_index(e)])]++);
    out.columns[to] = static_cast<int32_t>(row);
    if (!graph.values.empty()) out.values[to] = graph.values[as_index(e)];
  });
  return out;
}

CsrGraph with_self_loops(const CsrGraph& graph) {
  TESSERA_CHECK(graph.rows() == graph.column_count, "{} rows and {} columns", graph.rows(),
                graph.column_count);
  CsrGraph out;
  out.column_count = graph.column_count;
  const auto put = [&](int64_t column, float value) {
    out.columns.push_back(static_cast<int32_t>(column));
    if (!graph.values.empty()) out.values.push_back(value);
  };
  for (int64_t row = 0; row < graph.rows(); ++row) {
    bool there = false;
    for (int64_t e = graph.offsets[as_index(row)]; e < graph.offsets[as_index(row) + 1]; ++e) {
      const int64_t column = graph.columns[as_index(e)];
      if (!there && column > row) put(row, 1);
      there = there || column >= row;
      put(column, graph.value(e));
    }
    if (!there) put(row, 1);
    out.offsets.push_back(out.edges());
  }
  return out;
}

CsrGraph normalized_symmetric(const CsrGraph& graph) {
  TESSERA_CHECK(graph.rows() == graph.column_count, "{} rows and {} columns", graph.rows(),
                graph.column_count);
  std::vector<double> scale = row_sums(graph);
  for (double& sum : scale) sum = sum > 0 ? 1 / std::sqrt(sum) : 0;
  CsrGraph out = graph;
  out.values.resize(graph.columns.size());
  for_each_edge(graph, [&](int64_t row, int64_t e) {
    // The two scales are multiplied first, so that the results for (i, j) and (j, i) are equal to
    // the bit.
    out.values[as_index(e)] = static_cast<float>(
        scale[as_index(row)] * scale[as_index(graph.columns[as_index(e)])] * graph.value(e));
  });
  return out;
}

CsrGraph normalized_rows(const CsrGraph& graph) {
  const std::vector<double> sums = row_sums(graph);
  CsrGraph out = graph;
  out.values.resize(graph.columns.size());
  for_each_edge(graph, [&](int64_t row, int64_t e) {
    const double sum = sums[as_index(row)];
    out.values[as_index(e)] = sum > 0 ? static_cast<float>(graph.value(e) / sum) : 0;
  });
  return out;
}

}  // namespace tessera::sparse
