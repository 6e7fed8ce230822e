#include "tessera/sparse/graphs/read.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "tessera/base/text.h"
#include "tessera/test/source_dir.h"

namespace tessera::sparse {
namespace {

using ::testing::ElementsAre;

const std::string kGraphs = TESSERA_SOURCE_DIR "/data/graphs";

class ReadGraphs : public ::testing::Test {
 protected:
  ReadGraphs()
      : folder_((std::filesystem::temp_directory_path() /
                 ("tessera_graphs_" + std::to_string(getpid()) + "_" +
                  ::testing::UnitTest::GetInstance()->current_test_info()->name()))
                    .string()) {
    std::filesystem::create_directories(folder_);
  }
  ~ReadGraphs() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text) {
    EXPECT_TRUE(write_file(folder_ + "/" + name, text));
    return folder_ + "/" + name;
  }
  // Returns the reader's message without the folder; "" if it takes the file. Errors are of input.
  template <class T>
  std::string said(const Result<T>& result) {
    if (result) return "";
    EXPECT_EQ(exit_code(result.error().code), 2);
    std::string text = result.error().message;
    if (const size_t at = text.find(folder_); at != std::string::npos)
      text.erase(at, folder_.size() + 1);
    return text;
  }
  std::string matrix(const std::string& text, const ReadOptions& options = {}) {
    return said(read_matrix_market(write("m.mtx", text), options));
  }
  std::string list(const std::string& text, const EdgeListOptions& options = {}) {
    return said(read_edge_list(write("e.tsv", text), options));
  }

  std::string folder_;
};

TEST_F(ReadGraphs, matrix_market_of_all_fields_and_symmetries) {
  const CsrGraph real =
      read_matrix_market(write("a.mtx",
                               "%%MatrixMarket matrix coordinate Real General\r\n%\n2 3 3\n"
                               "1 1 0.5\n1 3 -2e1\n2 2 3\n"))
          .value();
  EXPECT_THAT(real.offsets, ElementsAre(0, 2, 3));
  EXPECT_THAT(real.columns, ElementsAre(0, 2, 1));
  EXPECT_THAT(real.values, ElementsAre(0.5, -20, 3));
  const CsrGraph pattern =
      read_matrix_market(
          write("b.mtx", "%%MatrixMarket matrix coordinate pattern symmetric\n3 3 2\n1 1\n3 1\n"))
          .value();
  EXPECT_THAT(pattern.columns, ElementsAre(0, 2, 0));
  EXPECT_TRUE(pattern.values.empty());
}

TEST_F(ReadGraphs, damaged_matrices_are_refused_in_one_line) {
  const std::string head = "%%MatrixMarket matrix coordinate real general\n";
  EXPECT_EQ(matrix(""),
            "m.mtx:1: expected a first line that begins with %%MatrixMarket, found another");
  EXPECT_EQ(matrix("%%MatrixMarket matrix array real general\n"),
            "m.mtx:1: expected the format coordinate, found 'array'");
  EXPECT_EQ(matrix("%%MatrixMarket matrix coordinate complex general\n"),
            "m.mtx:1: expected the field real or integer or pattern, found 'complex'");
  EXPECT_EQ(matrix("%%MatrixMarket matrix coordinate real skew-symmetric\n"),
            "m.mtx:1: expected the symmetry general or symmetric, found 'skew-symmetric'");
  EXPECT_EQ(matrix(head), "m.mtx:2: expected the size of the matrix, found the end of the file");
  EXPECT_EQ(matrix(head + "2 2 999999\n"),
            "m.mtx:2: expected a number of entries that fits the file, found 999999");
  EXPECT_EQ(matrix(head + "2000000000 2 1\n1 1 1\n"),
            "m.mtx:2: expected a number of rows in [0, 66609), found 2000000000");
  EXPECT_EQ(matrix(head + "2 2 1\n3 1 1\n"), "m.mtx:3: expected a row in [1, 3), found 3");
  EXPECT_EQ(matrix(head + "2 2 1\n1 0 1\n"), "m.mtx:3: expected a column in [1, 3), found 0");
  EXPECT_EQ(matrix(head + "2 2 1\n1 1 nan\n"),
            "m.mtx:3: expected a value that is finite, found nan");
  EXPECT_EQ(matrix(head + "2 2 1\n1 1\n"), "m.mtx:3: expected a value, found ''");
  EXPECT_EQ(matrix(head + "2 2 1\n1 1 1 1\n"), "m.mtx:3: expected the end of the line, found '1'");
  EXPECT_EQ(matrix(head + "2 2 2\n1 1 1\n"), "m.mtx:4: expected 2 entries, found 1");
  EXPECT_EQ(matrix(head + "2 2 1\n1 1 1\n2 2 1\n"), "m.mtx:4: expected 1 entries, found more");
  EXPECT_EQ(
      matrix(head + "3 3 3\n1 2 1\n3 1 1\n2 1 1\n"),
      "m.mtx:5: expected entries in ascending order, by rows or by columns, found (1, 0) after "
      "(2, 0), counted from 0");
  EXPECT_EQ(matrix(head + "3 3 3\n1 2 1\n3 1 1\n2 1 1\n", {.sort = true}), "");
  EXPECT_EQ(matrix(head + "3 3 2\n1 2 1\n1 2 1\n", {.sort = true}),
            "m.mtx: expected each edge once, found (0, 1) twice");
  EXPECT_EQ(matrix(head + "3 3 1\n1 2 1\n", {.symmetric = true}),
            "m.mtx: expected a symmetric matrix, found the edge (0, 1) but not (1, 0)");
  EXPECT_EQ(matrix("%%MatrixMarket matrix coordinate real symmetric\n3 3 1\n1 2 1\n"),
            "m.mtx:3: expected the lower triangle of a symmetric matrix, found row 1 and column 2");
  EXPECT_EQ(said(read_matrix_market(folder_ + "/none.mtx")).find("cannot"), 0U);
}

TEST_F(ReadGraphs, edge_lists_with_and_without_values) {
  const CsrGraph plain = read_edge_list(write("a.tsv", "# two edges\n0\t2\n\n1 0\n")).value();
  EXPECT_EQ(plain.rows(), 3);
  EXPECT_THAT(plain.columns, ElementsAre(2, 0));
  EdgeListOptions options;
  options.mirror = true;
  options.nodes = 4;
  const CsrGraph valued = read_edge_list(write("b.tsv", "0 2 0.5\n1 3 2\n"), options).value();
  EXPECT_EQ(valued.rows(), 4);
  EXPECT_THAT(valued.columns, ElementsAre(2, 3, 0, 1));
  EXPECT_THAT(valued.values, ElementsAre(0.5, 2, 0.5, 2));

  EXPECT_EQ(list("0 2 1\n1 3\n"), "e.tsv:2: expected values in all lines or in none, found both");
  EXPECT_EQ(list("0 4\n", options), "e.tsv:1: expected a node in [0, 4), found 4");
  EXPECT_EQ(list("0 x\x01\n"), "e.tsv:1: expected a node, found 'x\\x01'");
  EXPECT_EQ(list("0 1\n1 0\n", options),
            "e.tsv: expected each edge once in one direction, found (0, 1) twice");
  EXPECT_EQ(list("0 1 inf\n"), "e.tsv: expected finite values, found inf at (0, 1)");
}

TEST_F(ReadGraphs, node_data_that_does_not_fit_together_is_refused) {
  write("g_edges.tsv", "0\t1\n");
  write("g_labels.tsv", "0\t1\n1\t0\n");
  write("g_split.tsv", "0\ttrain\n1\ttest\n");
  write("g_features.tsv", "0\t3 5\n1\n");
  EXPECT_EQ(said(read_node_data(folder_, "g")), "");
  write("g_features.tsv", "0\t3 5\n");
  EXPECT_EQ(said(read_node_data(folder_, "g")),
            "g_features.tsv: expected a line for each of 2 nodes, found 1");
  write("g_features.tsv", "0\t3 5\n0\t4\n");
  EXPECT_EQ(said(read_node_data(folder_, "g")),
            "g_features.tsv:2: expected each node once, found 0 again");
  write("g_features.tsv", "0\t3 3\n1\n");
  EXPECT_EQ(said(read_node_data(folder_, "g")),
            "g_features.tsv: expected each edge once, found (0, 3) twice");
  write("g_features.tsv", "0\t3\n1\n");
  write("g_split.tsv", "0\ttrain\n1\tfoo\n");
  EXPECT_EQ(said(read_node_data(folder_, "g")),
            "g_split.tsv:2: expected train, val or test, found 'foo'");
  write("g_split.tsv", "2\ttrain\n");
  EXPECT_EQ(said(read_node_data(folder_, "g")),
            "g_split.tsv:1: expected a node in [0, 2), found 2");
}

// The numbers that data/graphs/README.md states.
TEST(GraphFiles, cora_is_what_its_origin_says) {
  const NodeData cora = read_node_data(kGraphs, "cora").value();
  EXPECT_EQ(cora.nodes(), 2708);
  EXPECT_EQ(cora.graph.edges(), 2 * 5278);
  EXPECT_TRUE(check(cora.graph, {.sorted = true, .symmetric = true}));
  EXPECT_EQ(cora.features.column_count, 1433);
  EXPECT_EQ(cora.features.edges(), 49216);
  EXPECT_EQ(cora.classes, 7);
  std::vector<int64_t> sizes(7);
  for (const int32_t label : cora.labels) ++sizes[label];
  EXPECT_THAT(sizes, ElementsAre(351, 217, 418, 818, 426, 298, 180));
  EXPECT_EQ(cora.train.size(), 140U);
  EXPECT_EQ(cora.validation.size(), 500U);
  EXPECT_EQ(cora.test.size(), 1000U);
  EXPECT_EQ(cora.test.front(), 1708);
}

TEST(GraphFiles, both_files_of_cora_have_the_same_degrees) {
  const CsrGraph matrix = read_matrix_market(kGraphs + "/cora.mtx", {.symmetric = true}).value();
  EXPECT_EQ(matrix.edges(), 13264);
  EXPECT_EQ(matrix.max_degree(), 169);
  const CsrGraph other = with_self_loops(read_node_data(kGraphs, "cora")->graph);
  std::vector<int64_t> a, b;
  for (int64_t row = 0; row < matrix.rows(); ++row) {
    a.push_back(matrix.degree(row));
    b.push_back(other.degree(row));
  }
  std::sort(a.begin(), a.end());
  std::sort(b.begin(), b.end());
  EXPECT_EQ(a, b);
}

TEST(GraphFiles, gnutella_is_directed) {
  const std::string path = kGraphs + "/p2p-Gnutella31.mtx";
  const CsrGraph graph = read_matrix_market(path).value();
  EXPECT_EQ(graph.rows(), 62586);
  EXPECT_EQ(graph.edges(), 147892);
  EXPECT_EQ(read_matrix_market(path, {.symmetric = true}).error().message,
            path + ": expected a symmetric matrix, found the edge (0, 1) but not (1, 0)");
}

}  // namespace
}  // namespace tessera::sparse
