#include "tessera/sparse/graphs/partition.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "tessera/base/philox.h"
#include "tessera/sparse/graphs/generate.h"
#include "tessera/sparse/graphs/read.h"
#include "tessera/test/source_dir.h"

namespace tessera::sparse::partition_test {
namespace {

using ::testing::ElementsAre;

constexpr Sampler kSamplers[] = {Sampler::kNone, Sampler::kBucket, Sampler::kStride,
                                 Sampler::kQuadratic, Sampler::kPermutation};

TEST(RowCuts, rows_go_to_ranks_in_equal_numbers) {
  const RowCuts cuts = cut_by_rows(11, 4);
  EXPECT_THAT(cuts.borders, ElementsAre(0, 3, 6, 9, 11));
  EXPECT_EQ(cuts.rows(3), 2);
  for (int64_t row = 0; row < 11; ++row) EXPECT_EQ(cuts.owner(row), row / 3);
  EXPECT_THAT(cut_by_rows(2, 4).borders, ElementsAre(0, 1, 2, 2, 2));
}

TEST(RowCuts, no_rank_has_more_than_its_share_and_a_row) {
  const CsrGraph graph = power_law_graph({.nodes = 5000, .edges = 60000, .seed = 2}).value();
  for (const Sampling& sampling : {Sampling{}, Sampling{Sampler::kBucket, 8, 0}}) {
    for (const int64_t ranks : {1, 2, 3, 7}) {
      const RowCuts cuts = cut_by_work(graph, sampling, ranks);
      ASSERT_EQ(cuts.ranks(), ranks);
      ASSERT_EQ(cuts.borders.back(), graph.rows());
      const int64_t share = (graph.rows() + sampled_edges(graph, sampling)) / ranks;
      for (int64_t rank = 0; rank < ranks; ++rank) {
        int64_t work = 0;
        for (int64_t row = cuts.borders[rank]; row < cuts.borders[rank + 1]; ++row)
          work += 1 + sampled_count(sampling, graph.degree(row));
        EXPECT_LE(work, share + graph.max_degree() + 2);
      }
    }
  }
}

// The halo by its definition: the distinct columns of other ranks among the sampled edges.
TEST(GraphPart, the_halo_is_what_the_sampled_rows_name_and_others_own) {
  const CsrGraph graph = power_law_graph({.nodes = 300, .edges = 3000, .seed = 2}).value();
  const RowCuts cuts = cut_by_rows(300, 3);
  for (const Sampler sampler : kSamplers) {
    const Sampling sampling{sampler, sampler == Sampler::kNone ? 0 : 3, 5};
    const CsrGraph sampled = sampled_csr(graph, sampling);
    const std::vector<GraphPart> parts = cut_graph(graph, cuts, sampling);
    for (const GraphPart& part : parts) {
      std::set<int64_t> wanted;
      for (int64_t row = cuts.borders[part.rank]; row < cuts.borders[part.rank + 1]; ++row) {
        for (int64_t e = sampled.offsets[row]; e < sampled.offsets[row + 1]; ++e) {
          if (cuts.owner(sampled.columns[e]) != part.rank) wanted.insert(sampled.columns[e]);
        }
      }
      EXPECT_EQ(std::set<int64_t>(part.halo.begin(), part.halo.end()), wanted);
      EXPECT_TRUE(std::is_sorted(part.halo.begin(), part.halo.end()));
      for (int64_t owner = 0; owner < 3; ++owner) {
        const std::vector<int64_t>& sent = parts[owner].sends[part.rank];
        ASSERT_EQ(static_cast<int64_t>(sent.size()),
                  part.halo_begin[owner + 1] - part.halo_begin[owner]);
        for (size_t i = 0; i < sent.size(); ++i)
          EXPECT_EQ(sent[i] + cuts.borders[owner], part.halo[part.halo_begin[owner] + i]);
      }
      EXPECT_TRUE(part.sends[part.rank].empty());
    }
  }
}

TEST(GraphPart, sampled_halos_are_smaller) {
  const CsrGraph cora =
      read_matrix_market(TESSERA_SOURCE_DIR "/data/graphs/cora.mtx", {.symmetric = true}).value();
  const RowCuts cuts = cut_by_rows(cora.rows(), 4);
  const auto bytes = [&](const Sampling& sampling) {
    int64_t sum = 0;
    for (const GraphPart& part : cut_graph(cora, cuts, sampling)) sum += halo_bytes(part, 16, 4);
    return sum;
  };
  const int64_t whole = bytes({});
  int64_t before = 0;
  for (const int64_t width : {1, 2, 4, 8, 200}) {
    const int64_t sampled = bytes({Sampler::kPermutation, width, 3});
    EXPECT_GT(sampled, before);
    EXPECT_LE(sampled, whole);
    before = sampled;
  }
  EXPECT_EQ(before, whole);
}

}  // namespace
}  // namespace tessera::sparse::partition_test
