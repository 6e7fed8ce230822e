#include "tessera/sparse/graphs/csr.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace tessera::sparse {
namespace {

using ::testing::ElementsAre;

// The edges 0 - 1, 0 - 2, 2 - 3, and the node 4 without edges.
const std::vector<Edge> kEdges = {{0, 2}, {0, 1}, {2, 3}};

CsrGraph undirected() { return csr_from_edges(5, 5, kEdges, {.mirror = true}).value(); }

std::string message(const Status& status) { return status ? "" : status.error().message; }
std::string message(const Result<CsrGraph>& graph) { return graph ? "" : graph.error().message; }

TEST(CsrGraph, edges_become_sorted_rows) {
  const CsrGraph graph = csr_from_edges(5, 5, kEdges, {.valued = false}).value();
  EXPECT_THAT(graph.offsets, ElementsAre(0, 2, 2, 3, 3, 3));
  EXPECT_THAT(graph.columns, ElementsAre(1, 2, 3));
  EXPECT_TRUE(graph.values.empty());
  EXPECT_EQ(graph.max_degree(), 2);
}

TEST(CsrGraph, mirrored_edges_are_symmetric_and_loops_count_once) {
  std::vector<Edge> edges = kEdges;
  edges.push_back({4, 4, 3});
  const CsrGraph graph = csr_from_edges(5, 5, edges, {.mirror = true, .symmetric = true}).value();
  EXPECT_EQ(graph.edges(), 7);
  EXPECT_EQ(transpose(graph), graph);
  EXPECT_EQ(graph.value(6), 3);
}

TEST(CsrGraph, self_loops_come_once_and_in_order) {
  const CsrGraph graph = with_self_loops(undirected());
  EXPECT_TRUE(check(graph, {.sorted = true, .symmetric = true}));
  EXPECT_THAT(graph.columns, ElementsAre(0, 1, 2, 0, 1, 0, 2, 3, 2, 3, 4));
  EXPECT_EQ(with_self_loops(graph), graph);
}

// Checks D^-1/2 (A + I) D^-1/2 by its definition, on a dense matrix.
TEST(CsrGraph, symmetric_normalisation_is_the_definition) {
  const CsrGraph loops = with_self_loops(undirected());
  const CsrGraph graph = normalized_symmetric(loops);
  for (int64_t row = 0; row < graph.rows(); ++row) {
    for (int64_t e = graph.offsets[row]; e < graph.offsets[row + 1]; ++e) {
      const int64_t column = graph.columns[e];
      EXPECT_FLOAT_EQ(graph.value(e), 1 / std::sqrt(static_cast<float>(loops.degree(row)) *
                                                    static_cast<float>(loops.degree(column))));
    }
  }
  EXPECT_TRUE(check(graph, {.symmetric = true}));  // to the last bit
}

TEST(CsrGraph, normalised_rows_sum_to_one_and_empty_rows_stay_empty) {
  const CsrGraph graph = normalized_rows(undirected());
  for (int64_t row = 0; row < 4; ++row) {
    double sum = 0;
    for (int64_t e = graph.offsets[row]; e < graph.offsets[row + 1]; ++e) sum += graph.value(e);
    EXPECT_FLOAT_EQ(static_cast<float>(sum), 1);
  }
  EXPECT_EQ(graph.degree(4), 0);
}

TEST(CsrGraph, transposing_twice_changes_nothing) {
  const CsrGraph graph = csr_from_edges(3, 4, {{0, 3, 2}, {2, 0, 5}, {2, 3, 7}}).value();
  const CsrGraph turned = transpose(graph);
  EXPECT_THAT(turned.columns, ElementsAre(2, 0, 2));
  EXPECT_THAT(turned.values, ElementsAre(5, 2, 7));
  EXPECT_EQ(transpose(turned), graph);
}

TEST(CsrGraph, edges_that_are_no_graph_are_refused) {
  const float infinite = std::numeric_limits<float>::infinity();
  EXPECT_EQ(message(csr_from_edges(2, 3, {{0, 3}})), "expected an edge inside 2 x 3, found (0, 3)");
  EXPECT_EQ(message(csr_from_edges(2, 3, {{-1, 0}})),
            "expected an edge inside 2 x 3, found (-1, 0)");
  EXPECT_EQ(message(csr_from_edges(2, 3, {{0, 1}, {1, 1}, {0, 1}})),
            "expected each edge once, found (0, 1) twice");
  EXPECT_EQ(message(csr_from_edges(2, 2, {{0, 1}, {1, 0}}, {.mirror = true})),
            "expected each edge once in one direction, found (0, 1) twice");
  EXPECT_EQ(message(csr_from_edges(2, 3, {{0, 1, infinite}})),
            "expected finite values, found inf at (0, 1)");
  EXPECT_EQ(message(csr_from_edges(2, 3, {}, {.mirror = true})),
            "expected a square matrix of undirected edges, found 2 x 3");
  EXPECT_EQ(message(csr_from_edges(int64_t{1} << 31, 3, {})),
            "expected at most 2147483647 rows and columns, found 2147483648 x 3");
  EXPECT_EQ(message(csr_from_edges(3, 3, {{0, 1}, {1, 0}, {2, 1}}, {.symmetric = true})),
            "expected a symmetric matrix, found the edge (2, 1) but not (1, 2)");
  EXPECT_EQ(message(csr_from_edges(3, 3, {{0, 1}}, {.symmetric = true})),
            "expected a symmetric matrix, found the edge (0, 1) but not (1, 0)");
  EXPECT_EQ(message(csr_from_edges(3, 3, {{0, 1, 2}, {1, 0, 3}}, {.symmetric = true})),
            "expected a symmetric matrix, found value 2 at (0, 1) and 3 at (1, 0)");
}

TEST(CsrGraph, check_names_what_is_broken) {
  const CsrGraph good = undirected();
  EXPECT_EQ(message(check(good, {.sorted = true, .symmetric = true})), "");
  CsrGraph bad = good;
  bad.offsets[0] = 1;
  EXPECT_EQ(message(check(bad)), "expected row offsets that begin with 0, found others");
  bad = good;
  bad.offsets[2] = 1;
  EXPECT_EQ(message(check(bad)), "expected row offsets that do not fall, found 1 after 2 at row 1");
  bad = good;
  bad.offsets.back() = 7;
  EXPECT_EQ(message(check(bad)), "expected row offsets that end with the 6 edges, found 7");
  bad = good;
  bad.values.pop_back();
  EXPECT_EQ(message(check(bad)), "expected a value for each of 6 edges, found 5 values");
  bad = good;
  bad.columns[3] = 5;
  EXPECT_EQ(message(check(bad)), "expected columns in [0, 5), found 5 in row 2");
  bad = good;
  std::swap(bad.columns[0], bad.columns[1]);
  EXPECT_EQ(message(check(bad)), "");
  EXPECT_EQ(message(check(bad, {.sorted = true})),
            "expected ascending columns, found 1 after 2 in row 0");
  EXPECT_EQ(message(check(csr_from_edges(2, 3, {}).value(), {.symmetric = true})),
            "expected a symmetric matrix, found 2 rows and 3 columns: it is not square");
}

}  // namespace
}  // namespace tessera::sparse
