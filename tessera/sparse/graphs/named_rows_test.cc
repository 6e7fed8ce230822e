// Checks which member names which rows, against the sampled edges one by one, and by hand.
#include "tessera/sparse/graphs/named_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tessera/sparse/graphs/test_power_law.h"

namespace tessera::sparse {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Returns the rows of `owner` that sampled edges of the rows `names` name, from the owner's first.
std::vector<int32_t> named(const CsrGraph& graph, const Sampling& sampling, const Interval& names,
                           const Interval& owner) {
  std::set<int32_t> rows;
  for (int64_t row = names.begin; row < names.end(); ++row) {
    std::vector<int32_t> positions(static_cast<size_t>(sampled_count(sampling, graph.degree(row))));
    sampled_positions(sampling, row, graph.degree(row), positions.data());
    for (const int32_t position : positions) {
      const int64_t column = graph.columns[graph.offsets[row] + position];
      if (column >= owner.begin && column < owner.end())
        rows.insert(static_cast<int32_t>(column - owner.begin));
    }
  }
  return {rows.begin(), rows.end()};
}

TEST(NamedLists, are_the_halos_of_a_cut_graph_under_every_sampler) {
  constexpr int64_t kNodes = 157;
  const CsrGraph graph = power_law_graph({.nodes = kNodes, .edges = 1500, .seed = 6}).value();
  const std::vector<int64_t> begin(graph.offsets.begin(), graph.offsets.end() - 1);
  const std::vector<int64_t> end(graph.offsets.begin() + 1, graph.offsets.end());
  const std::vector<int64_t> columns(graph.columns.begin(), graph.columns.end());
  for (const Sampler sampler : {Sampler::kNone, Sampler::kBucket, Sampler::kStride,
                                Sampler::kQuadratic, Sampler::kPermutation}) {
    const Sampling sampling{sampler, sampler == Sampler::kNone ? 0 : 4, 7};
    for (const int64_t ranks : {1, 2, 3, 4, 6}) {
      for (const int64_t first : {kNodes / ranks, int64_t{11}}) {  // rows of the first rank
        std::vector<Interval> rows;
        for (int64_t rank = 0, begin_row = 0; rank < ranks; ++rank) {
          const int64_t left = kNodes - begin_row;
          const int64_t size = rank + 1 == ranks ? left : rank == 0 ? first : left / (ranks - rank);
          rows.push_back({begin_row, size});
          begin_row += size;
        }
        const NamedLists found = name_rows({begin, end, columns, kNodes}, sampling, rows, rows);
        for (size_t owner = 0; owner < rows.size(); ++owner) {
          for (size_t names = 0; names < rows.size(); ++names) {
            const std::vector<int32_t>& list = found.of(names, owner);
            EXPECT_EQ(list, owner == names ? std::vector<int32_t>{}
                                           : named(graph, sampling, rows[names], rows[owner]));
            EXPECT_EQ(found.counts()[names * rows.size() + owner],
                      static_cast<int64_t>(list.size()));
          }
        }
      }
    }
  }
}

// Ids out of range name the nearest row, and a row whose end lies before its begin names none.
TEST(NamedLists, take_ids_as_kernels_take_them) {
  const std::vector<int64_t> begin{0, 2, -5, 3}, end{2, 1, 1, 99}, columns{3, 0, -7, 12};
  const std::vector<Interval> halves{{0, 2}, {2, 2}};
  const NamedLists found = name_rows({begin, end, columns, 4}, {}, halves, halves);
  EXPECT_THAT(found.of(0, 1), ElementsAre(1)) << "rows 3 and 0; 0 is its own";
  EXPECT_THAT(found.of(1, 0), IsEmpty()) << "rows 3 and 3";
}

// Rows of the table may lie elsewhere than rows of the op.
TEST(NamedLists, know_who_owns_a_row) {
  const std::vector<int64_t> begin{0, 1, 2, 3}, end{1, 2, 3, 4}, columns{5, 0, 2, 2};
  const NamedLists found =
      name_rows({begin, end, columns, 6}, {}, {{0, 1}, {1, 3}, {4, 0}}, {{0, 1}, {1, 0}, {1, 5}});
  EXPECT_THAT(found.of(0, 2), ElementsAre(4));
  EXPECT_THAT(found.of(1, 0), ElementsAre(0));
  EXPECT_THAT(found.of(1, 2), ElementsAre(1)) << "once, though two rows name it";
  EXPECT_THAT(found.of(2, 0), IsEmpty());
}

}  // namespace
}  // namespace tessera::sparse
